// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/error.h"

namespace weft {

using Values = std::vector<double>;

TEST(Operators, NestedBracesMakeATensor) {
  const Tensor row = Tensor::of({1, 2, 3});
  EXPECT_EQ(row.shape(), (Shape{3}));
  EXPECT_EQ(row.dtype(), i64);
  EXPECT_EQ(row.to_vector<double>(), (Values{1, 2, 3}));
  EXPECT_EQ(Tensor::of({{1}, {2}}).shape(), (Shape{2, 1}));
  EXPECT_EQ(Tensor::of({{1, 2}}).shape(), (Shape{1, 2}));
  const Tensor cube = Tensor::of({{{1, 2.5}, {3, 4}}, {{5, 6}, {7, 8}}, {{9, 10}, {11, 12}}});
  EXPECT_EQ(cube.shape(), (Shape{3, 2, 2}));
  EXPECT_EQ(cube.dtype(), f32);
  EXPECT_EQ(cube.to_vector<double>(), (Values{1, 2.5, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(Tensor::of({true, false}).dtype(), boolean);
  EXPECT_EQ(Tensor::of({true, 2}).dtype(), i64);
  EXPECT_EQ(Tensor::of(2.5).item(), 2.5);
  EXPECT_EQ(Tensor::of(2.5).ndim(), 0);
  EXPECT_EQ(Tensor::of({}).shape(), (Shape{0}));
  EXPECT_EQ(error_of([] {
              (void)Tensor::of({{1, 2}, {3}});
            }),
            "of: shape of a list is [1], expected [2], as the first one of its level");
}

TEST(Operators, AComparisonTakesANumberOnEitherSide) {
  const Tensor a = Tensor::of({-1.0, 0.0, 2.0}), b = Tensor::of({0.0, 0.0, 3.0});
  auto truths = [](const Tensor& t) {
    EXPECT_EQ(t.dtype(), boolean);
    return t.to_vector<double>();
  };
  EXPECT_EQ(truths(a > 0.0), (Values{0, 0, 1}));
  EXPECT_EQ(truths(a >= 0), (Values{0, 1, 1}));
  EXPECT_EQ(truths(a < 0.0), (Values{1, 0, 0}));
  EXPECT_EQ(truths(a <= 0.0), (Values{1, 1, 0}));
  EXPECT_EQ(truths(0.0 > a), (Values{1, 0, 0}));
  EXPECT_EQ(truths(0 >= a), (Values{1, 1, 0}));
  EXPECT_EQ(truths(0.0 < a), (Values{0, 0, 1}));
  EXPECT_EQ(truths(0.0 <= a), (Values{0, 1, 1}));
  EXPECT_EQ(truths(a < b), (Values{1, 0, 1}));
  EXPECT_EQ(truths(a >= b), (Values{0, 1, 0}));
  EXPECT_EQ(truths(equal(a, 2)), (Values{0, 0, 1}));
  EXPECT_EQ(truths(not_equal(a, 2)), (Values{1, 1, 0}));
  // A floating number next to integers is not rounded.
  EXPECT_EQ(truths(Tensor::of({1, 2}) > 1.5), (Values{0, 1}));
}

TEST(Operators, AComparisonWithANumberKeepsTheLayoutAndMovesNothing) {
  on_mesh({{"dp", 3}}, [](const DeviceMesh& mesh) {
    const Tensor a = numbers({5, 2}, 1, Sharding(mesh, {Shard(0)}));
    Tensor positive;
    EXPECT_EQ(bytes_received(mesh, [&] { positive = a > 0; }), 0);
    expect_placements(positive, {Shard(0)});
    EXPECT_EQ(whole_values(positive), (numbers({5, 2}, 1) > 0).to_vector<double>());
  });
}

TEST(Operators, IndicesTakeAnElementOrABlock) {
  const Tensor a = reshape(arange(24), {2, 3, 4});
  EXPECT_EQ(a[{0}].shape(), (Shape{3, 4}));
  EXPECT_EQ(a[1].to_vector<double>()[0], 12);
  EXPECT_EQ((a[{1, -1}].to_vector<double>()), (Values{20, 21, 22, 23}));
  EXPECT_EQ((a[{1, 2, 3}].item()), 23);
  EXPECT_EQ(error_of([&] {
              (void)a[{0, 3}];
            }),
            "index: it is 3, expected one of the 3 elements of dim 1 of [2, 3, 4]");
  EXPECT_EQ(error_of([&] {
              (void)a[{0, 0, 0, 0}];
            }),
            "index: number of indices is 4, expected at most 3, the dims of [2, 3, 4]");
  on_mesh({{"dp", 3}}, [](const DeviceMesh& mesh) {
    Tensor x = numbers({5, 2}, 0, Sharding(mesh, {Shard(0)}));
    x.set_requires_grad();
    const Tensor row = x[3];
    EXPECT_EQ(whole_values(row), numbers({5, 2})[3].to_vector<double>());
    sum(row * 2).backward();
    EXPECT_EQ(whole_values(x.grad()), (Values{0, 0, 0, 0, 0, 0, 2, 2, 0, 0}));
  });
}

TEST(Operators, ValuesOfEachTypeMakeATensorOfItsDtype) {
  const int64_t large = (int64_t{1} << 53) + 1;
  const Tensor exact = from_values(std::vector<int64_t>{large, -large}, {2});
  EXPECT_EQ(exact.dtype(), i64);
  EXPECT_EQ(exact.to_vector<int64_t>(), (std::vector<int64_t>{large, -large}));
  EXPECT_EQ(from_values(std::vector<float>{0.5f}, {1}).dtype(), f32);
  EXPECT_EQ(from_values(std::vector<int32_t>{7}, {1}).dtype(), i32);
  EXPECT_EQ(from_values(std::vector<uint8_t>{7, 255}, {2}).to_vector<double>(), (Values{7, 255}));
  const std::array<bool, 2> truths = {true, false};
  EXPECT_EQ(from_values(truths, {2}).dtype(), boolean);
  EXPECT_EQ(from_values(truths, {2}).to_vector<double>(), (Values{1, 0}));
  EXPECT_EQ(from_values(std::vector<float>{0.5f}, {1}, {.dtype = bf16}).to_vector<double>(),
            (Values{0.5}));
  EXPECT_EQ(error_of([] {
              (void)from_values(std::vector<float>{1, 2}, {3});
            }),
            "from_values: number of values is 2, expected 3, the elements of [3]");
}

}  // namespace weft

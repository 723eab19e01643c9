// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "tests/ops/agreement.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/ranks.h"

namespace weft {

// Expected values are from numpy.arange, linspace, eye, tril and triu.

TEST(Sequences, RangesEndBelowTheirStop) {
  const TensorOptions wide{.dtype = f64};
  const std::vector<double> fractions = arange(1, 2, 0.3, wide).to_vector<double>();
  ASSERT_EQ(fractions.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_DOUBLE_EQ(fractions[i], 1 + 0.3 * static_cast<double>(i));
  EXPECT_EQ(arange(5, 0, -2, {.dtype = i64}).to_vector<double>(), (std::vector<double>{5, 3, 1}));
  EXPECT_EQ(arange(0, -3).numel(), 0);
  EXPECT_EQ(arange(2, 2).numel(), 0);
  EXPECT_EQ(arange(0, 2.5, 1, {.dtype = i32}).to_vector<double>(), (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(arange(0, 3).dtype(), f32);
  EXPECT_EQ(arange(3).dtype(), i64);
}

TEST(Sequences, AreEvenlySpaced) {
  const TensorOptions wide{.dtype = f64};
  EXPECT_EQ(linspace(0, 1, 5, true, wide).to_vector<double>(),
            (std::vector<double>{0, 0.25, 0.5, 0.75, 1}));
  const std::vector<double> open = linspace(0, 1, 5, false, wide).to_vector<double>();
  for (size_t i = 0; i < 5; ++i) EXPECT_DOUBLE_EQ(open[i], 0.2 * static_cast<double>(i));
  EXPECT_EQ(linspace(-1, 2, 7).to_vector<double>(),
            (std::vector<double>{-1, -0.5, 0, 0.5, 1, 1.5, 2}));
  EXPECT_EQ(linspace(3, 3, 3).to_vector<double>(), (std::vector<double>{3, 3, 3}));
  EXPECT_EQ(linspace(5, -2, 1).to_vector<double>(), (std::vector<double>{5}));
  EXPECT_EQ(linspace(0, 1, 0).numel(), 0);
  // The last one is exactly the stop, which multiples of the step may miss.
  EXPECT_EQ(linspace(0, 0.7, 50, true, wide).to_vector<double>().back(), 0.7);
}

TEST(Sequences, OnesLieOnTheDiagonal) {
  EXPECT_EQ(eye(2, 3).to_vector<double>(), (std::vector<double>{1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(eye(3, 2, -1).to_vector<double>(), (std::vector<double>{0, 0, 1, 0, 0, 1}));
  EXPECT_EQ(eye(2, 3, 2).to_vector<double>(), (std::vector<double>{0, 0, 1, 0, 0, 0}));
  EXPECT_EQ(eye(2, 3, 3).to_vector<double>(), (std::vector<double>(6, 0)));
  EXPECT_EQ(eye(2, 3, -2).to_vector<double>(), (std::vector<double>(6, 0)));
  EXPECT_EQ(eye(0, 3).shape(), (Shape{0, 3}));
  EXPECT_EQ(eye(1, 1, 0, {.dtype = boolean}).dtype(), boolean);
}

TEST(Sequences, HaveTheSameBitsInAnyLayout) {
  struct Case {
    std::vector<MeshAxis> axes;
    Placements first, second;
  };
  const std::vector<Case> cases = {
      {{{"x", 4}}, {Shard(0)}, {Shard(1)}},
      {{{"x", 3}}, {Shard(0)}, {Shard(0)}},
      {{{"x", 2}, {"y", 2}}, {Shard(0), Shard(0)}, {Shard(0), Shard(1)}},
      {{{"x", 2}, {"y", 2}}, {Replicate(), Shard(0)}, {Shard(1), Shard(1)}},
  };
  for (const Case& c : cases) {
    run_ranks(ranks_of(c.axes), [&](Communicator world) {
      DeviceMesh mesh(world, c.axes);
      for (int64_t n : {1, 5, 7}) {
        const TensorOptions options{.sharding = Sharding(mesh, c.first)};
        EXPECT_EQ(whole(linspace(0.1, 0.7, n, true, options)).values,
                  linspace(0.1, 0.7, n).to_vector<double>());
        EXPECT_EQ(whole(arange(0.1, 0.1 * static_cast<double>(n), 0.1, options)).values,
                  arange(0.1, 0.1 * static_cast<double>(n), 0.1).to_vector<double>());
        for (int64_t diagonal : {-6, -2, 0, 1, 4}) {
          const TensorOptions cut{.sharding = Sharding(mesh, c.second)};
          EXPECT_EQ(whole(eye(n, 5, diagonal, cut)).values,
                    eye(n, 5, diagonal).to_vector<double>());
        }
      }
    });
  }
}

static Tensor counted(const Shape& shape) {
  return reshape(arange(1, static_cast<double>(shape.product()) + 1), shape);
}

TEST(Sequences, TrianglesKeepTheirSide) {
  const Tensor a = counted({3, 4});
  EXPECT_EQ(tril(a).to_vector<double>(),
            (std::vector<double>{1, 0, 0, 0, 5, 6, 0, 0, 9, 10, 11, 0}));
  EXPECT_EQ(tril(a, 2).to_vector<double>(),
            (std::vector<double>{1, 2, 3, 0, 5, 6, 7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(triu(a, -1).to_vector<double>(),
            (std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 0, 10, 11, 12}));
  EXPECT_EQ(triu(a, 5).to_vector<double>(), std::vector<double>(12, 0));
  EXPECT_EQ(tril(a, -3).to_vector<double>(), std::vector<double>(12, 0));
  EXPECT_EQ(tril(a.t()).to_vector<double>(),
            (std::vector<double>{1, 0, 0, 2, 6, 0, 3, 7, 11, 4, 8, 12}));
  EXPECT_EQ(tril(counted({2, 2, 2})).to_vector<double>(),
            (std::vector<double>{1, 0, 3, 4, 5, 0, 7, 8}));
  EXPECT_EQ(triu(zeros({0, 3})).shape(), (Shape{0, 3}));
  // Omitted elements are set to zero, not multiplied by it.
  EXPECT_EQ(tril(full({2, 2}, std::numeric_limits<double>::quiet_NaN()), -3).to_vector<double>(),
            std::vector<double>(4, 0));
  EXPECT_EQ(triu(cast(a, boolean)).dtype(), boolean);
}

TEST(Sequences, FlipsAnyDims) {
  const Tensor a = counted({2, 3});
  EXPECT_EQ(flip(a, {1}).to_vector<double>(), (std::vector<double>{3, 2, 1, 6, 5, 4}));
  EXPECT_EQ(flip(a, {-2}).to_vector<double>(), (std::vector<double>{4, 5, 6, 1, 2, 3}));
  EXPECT_EQ(flip(a).to_vector<double>(), (std::vector<double>{6, 5, 4, 3, 2, 1}));
  EXPECT_EQ(flip(a.t(), {1}).to_vector<double>(), (std::vector<double>{4, 1, 5, 2, 6, 3}));
  EXPECT_EQ(flip(zeros({0, 3})).shape(), (Shape{0, 3}));
  EXPECT_EQ(flip(full({}, 2)).item(), 2);
}

TEST(Sequences, SayWhatIsWrong) {
  const Tensor a = zeros({3, 4}), none;
  EXPECT_EQ(error_of([] { arange(0, 3, 0); }), "arange: step is 0, expected another number");
  EXPECT_EQ(error_of([] { arange(0, 1, 0.5, {.dtype = i32}); }),
            "arange: a number is 0.5, expected whole ones for i32");
  EXPECT_EQ(error_of([] { arange(0, std::numeric_limits<double>::infinity()); }),
            "arange: a number is inf, expected finite ones");
  EXPECT_EQ(error_of([] { linspace(0, 1, -1); }),
            "linspace: number of elements must be at least 0, got -1");
  EXPECT_EQ(error_of([] { eye(-1, 2); }), "eye: shape is [-1, 2], expected sizes of at least 0");
  EXPECT_EQ(error_of([&] {
              flip(a, {0, -2});
            }),
            "flip: dim 0 of [3, 4] is given twice, expected once");
  EXPECT_EQ(error_of([&] { flip(none); }), "flip: no tensor is given, expected one");
  EXPECT_EQ(error_of([&] { tril(none); }), "tril: no tensor is given, expected one");
  EXPECT_EQ(error_of([&] { triu(zeros({3})); }),
            "triu: number of dims of [3] is 1, expected at least 2");
}

}  // namespace weft

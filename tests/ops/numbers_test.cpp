// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <thread>

#include "tests/ops/agreement.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/autograd.h"
#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/extend/tape.h"
#include "weft/ops.h"
#include "weft/ranks.h"

namespace weft {

using Values = std::vector<double>;

// NumPy's results.

TEST(Numbers, LessATensorAreOfTheDtypeThatHoldsBoth) {
  const Tensor mask = from_values(Values{1, 0}, {2}, {.dtype = DType::boolean});
  EXPECT_EQ((1 - mask).to_vector<double>(), (Values{0, 1}));
  EXPECT_EQ((1 - mask).dtype(), i64);
  const Tensor bytes = from_values(Values{2, 0}, {2}, {.dtype = u8});
  EXPECT_EQ((0.5 - bytes).to_vector<double>(), (Values{-1.5, 0.5}));
  EXPECT_EQ((1 - bytes).to_vector<double>(), (Values{255, 1}));
  const Tensor least = full({1}, -0x1p31, {.dtype = i32});
  EXPECT_EQ((0.5 - least).to_vector<double>(), (Values{0x1p31}));
}

TEST(Numbers, AreIntegersOrFloatingByTheirTypeAlone) {
  const Tensor integers = arange(3), truths = ones({1}, {.dtype = boolean});
  EXPECT_EQ((integers * 1.0).dtype(), f32);
  EXPECT_EQ((integers + 1.0).dtype(), f32);
  EXPECT_EQ((2.0 - integers).dtype(), f32);
  EXPECT_EQ(pow(integers, 2.0).dtype(), f32);
  EXPECT_EQ(pow(2.0f, integers).dtype(), f32);
  EXPECT_EQ((integers * 2).dtype(), i64);
  EXPECT_EQ((integers * true).dtype(), i64);
  EXPECT_EQ((truths * 1).dtype(), i64);
  EXPECT_EQ((truths + true).dtype(), boolean);
  EXPECT_EQ((truths * 2.0).dtype(), f32);
  EXPECT_EQ((ones({1}, {.dtype = bf16}) * 2.0).dtype(), bf16);
  EXPECT_EQ((ones({1}, {.dtype = f64}) * 2).dtype(), f64);
}

TEST(Numbers, DivideExactly) {
  EXPECT_EQ((full({1}, 49, {.dtype = f64}) / 49).item(), 1);
  EXPECT_EQ((full({1}, 41, {.dtype = i32}) / 41).item(), 1);
  EXPECT_EQ((zeros({1}, {.dtype = f64}) / 1e-310).item(), 0);
  EXPECT_EQ((zeros({1}) / 1e-39).item(), 0);
}

TEST(Numbers, OfASequenceCountOnceInAPartial) {
  run_ranks(3, [](const Communicator& world) {
    const DeviceMesh mesh(world, {{"a", 3}});
    const TensorOptions options{.dtype = i64, .sharding = Sharding(mesh, {Partial()})};
    EXPECT_EQ(arange(4, options).full_tensor().to_vector<double>(), (Values{0, 1, 2, 3}));
    EXPECT_EQ(arange(1, 7, 3, options).full_tensor().to_vector<double>(), (Values{1, 4}));
    EXPECT_EQ(eye(2, 2, 0, options).full_tensor().to_vector<double>(), (Values{1, 0, 0, 1}));
    const TensorOptions mean{.sharding = Sharding(mesh, {Partial(ReduceOp::avg)})};
    EXPECT_EQ(linspace(0, 2, 3, true, mean).full_tensor().to_vector<double>(), (Values{0, 1, 2}));
  });
}

TEST(Numbers, SumsOfPartialsOfBoolAreThoseOfTheWhole) {
  run_ranks(3, [](const Communicator& world) {
    const DeviceMesh mesh(world, {{"a", 3}});
    const Tensor mine =
        from_values(Values{1, world.rank() == 1 ? 1. : 0., 0}, {3}, {.dtype = DType::boolean});
    const Tensor any = from_local(mine, mesh, {Partial()});
    EXPECT_EQ(sum(any).full_tensor().item(), 2);
    EXPECT_EQ(cumulative_sum(any, 0).full_tensor().to_vector<double>(), (Values{1, 2, 2}));
    const Tensor large = from_local(full({2}, 200, {.dtype = u8}), mesh, {Partial()});
    EXPECT_EQ(sum(large).full_tensor().item(), sum(large.full_tensor()).item());
  });
}

TEST(Numbers, OfHugeStepsTakeTheFirstElement) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  Tensor x = from_values(Values{1, 2, 3, 4, 5}, {5});
  x.set_requires_grad(true);
  const Tensor first = slice(x, 0, 0, kMost, kMost);
  EXPECT_EQ(first.to_vector<double>(), (Values{1}));
  sum(first).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{1, 0, 0, 0, 0}));
}

// Tensors that are changed in place while they are read.

TEST(Numbers, ThatAreOverwrittenAreReadBefore) {
  const NoGrad no_grad;
  const Tensor table = arange(0, 15, 1).reshape({5, 3});
  copy_(slice(slice(table, 0, 1, 5), 1, 0, 2), slice(slice(table, 0, 0, 4), 1, 0, 2));
  EXPECT_EQ(table.to_vector<double>(), (Values{0, 1, 2, 0, 1, 5, 3, 4, 8, 6, 7, 11, 9, 10, 14}));
  const int64_t n = 70000;
  const Tensor line = arange(0, n, 1);
  copy_(slice(line, 0, 1, n), slice(line, 0, 0, n - 1));
  const std::vector<double> moved = line.to_vector<double>();
  for (int64_t i = 1; i < n; ++i) ASSERT_EQ(moved[static_cast<size_t>(i)], i - 1);
  const Tensor square = arange(0, 64 * 64, 1).reshape({64, 64});
  copy_(square, transpose(square, 0, 1));
  EXPECT_EQ(square.to_vector<double>()[1], 64);
  EXPECT_EQ(square.to_vector<double>()[64], 1);
  const Tensor added = arange(0, 64 * 64, 1).reshape({64, 64});
  add_scaled_(added, transpose(added, 0, 1), ones({}));
  for (int64_t i = 0; i < 64 * 64; ++i) {
    ASSERT_EQ(added.to_vector<double>()[static_cast<size_t>(i)], i + i % 64 * 64 + i / 64);
  }
  const Tensor scaled = arange(2, 5002, 1);
  scale_(scaled, slice(scaled, 0, 0, 1));
  EXPECT_EQ(scaled.to_vector<double>().back(), 2 * 5001);
}

/// A sink with its own memory for gradients.
class MemorySink final : public GradientSink {
 public:
  explicit MemorySink(Tensor memory) : memory_(std::move(memory)) {}
  Destination destination() override { return {memory_, false}; }
  void complete() override {}

 private:
  Tensor memory_;
};

TEST(Numbers, TakenThroughATransposedViewHaveTheirGradient) {
  const Tensor ids = from_values(Values{2, 0, 2}, {3}, {.dtype = i64});
  const auto backward_to = [&](const std::shared_ptr<MemorySink>& place) {
    Tensor leaf = arange(0, 12, 1).reshape({4, 3});
    leaf.set_requires_grad(true);
    if (place) set_gradient_sink(leaf, place);
    sum(mul(take(transpose(leaf, 0, 1), ids, 0), arange(1, 13, 1).reshape({3, 4}))).backward();
    return leaf.grad();
  };
  const Tensor memory = full({4, 3}, 7);
  backward_to(std::make_shared<MemorySink>(memory));
  EXPECT_EQ(memory.to_vector<double>(), (Values{5, 0, 10, 6, 0, 12, 7, 0, 14, 8, 0, 16}));
  EXPECT_EQ(backward_to({}).to_vector<double>(), memory.to_vector<double>());
}

TEST(Numbers, GoBackFromAnotherThread) {
  Tensor x = ones({3});
  x.set_requires_grad(true);
  const Tensor y = mul(x, 2), seed = full({3}, 5);
  std::thread([&] { backward({y}, {seed}); }).join();
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{10, 10, 10}));
}

}  // namespace weft

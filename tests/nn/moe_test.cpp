// SPDX-License-Identifier: Apache-2.0
#include "weft/moe.h"

#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/autograd.h"
#include "weft/context.h"

namespace weft {
namespace {

MoEConfig little() { return {.dim = 4, .width = 3, .experts = 5}; }

}  // namespace

TEST(Moe, TakesAnyLeadingDims) {
  MoE block(little());
  block.materialize();
  const Tensor x = numbers({2, 3, 4}), y = block(x);
  EXPECT_EQ(y.shape(), x.shape());
  expect_values(block(reshape(x, {6, 4})).to_vector<double>(), y.to_vector<double>());
  EXPECT_EQ(block(numbers({0, 4})).shape(), (Shape{0, 4}));
  EXPECT_EQ(sum(block.load()).item(), 2 * 12);
}

/// Recompute runs forward twice, and counts once.
TEST(Moe, CountsTheLoadOnce) {
  MoE block(little());
  block.set_recompute(true);
  block.materialize();
  sum(block(numbers({6, 4}).set_requires_grad())).backward();
  EXPECT_EQ(sum(block.load()).item(), 12);
  block.update_balance();
  EXPECT_FALSE(block.load());
  {
    const NoGrad no_grad;
    block(numbers({6, 4}));
  }
  EXPECT_FALSE(block.load());
}

TEST(Moe, DropsBeyondTheCapacity) {
  MoEConfig config = little();
  config.capacity_factor = 1;
  MoE block(config);
  block.materialize();
  fill_(block.module("gate").parameters()[0]->value().detach(), 0);  // all choose experts 0 and 1
  const Tensor y = block(numbers({10, 4}));
  EXPECT_EQ(block.load().to_vector<double>(), (std::vector<double>{4, 4, 0, 0, 0}));
  EXPECT_EQ(block.dropped(), 12);
  const auto values = y.to_vector<double>();
  EXPECT_EQ(std::count(values.end() - 6 * 4, values.end(), 0.0), 6 * 4);
}

TEST(Moe, RoutersComputeInF32IfTheyAreSetTo) {
  for (const bool wide : {false, true}) {
    MoEConfig config = little();
    config.f32_logits = wide;
    Router router(config);
    router.to(DType::bf16);
    router.materialize();
    const Tensors routed = router(Tensors{numbers({6, 4}, 0, {}, DType::bf16)});
    EXPECT_EQ(routed[3].dtype(), wide ? DType::f32 : DType::bf16);
  }
}

/// The bias leads choices away from experts with many rows until the load is nearly even.
TEST(Moe, BalancesWithoutALoss) {
  MoEConfig config = little();
  config.router = {.top_k = 1, .scores = RouterOptions::Scores::sigmoid};
  config.balance_bias = true;
  MoE block(config);
  block.materialize();
  const Tensor x = add(mul(randn({200, 4}), 0.3), 1.0);
  double first = 0, last = 0;
  for (int step = 0; step < 400; ++step) {
    block(x);
    last = max(block.load()).item();
    if (step == 0) first = last;
    block.update_balance(0.003);
  }
  EXPECT_GT(first, 80);
  EXPECT_LT(last, 55);
}

/// Backward adds the losses' gradients to the router's, and only to those.
TEST(Moe, AddsLossesInBackward) {
  const auto gradient = [](double balance, double z) {
    MoEConfig config = little();
    config.balance_coefficient = balance;
    config.z_coefficient = z;
    MoE block(config);
    Context::current().random = {};
    block.materialize();
    const Tensor x = numbers({6, 4});
    sum(block(x)).backward();
    const ParameterPtr weight = block.module("gate").parameters()[0];
    const auto actual = weight->grad().to_vector<double>();
    weight->clear_grad();
    // The same, added to the loss.
    const Tensor logits = matmul(x, transpose(weight->tensor(), 0, 1));
    const Tensor expected =
        add(mul(balance_loss(route_tokens(logits)), balance), mul(router_z_loss(logits), z));
    if (balance != 0) {
      EXPECT_NEAR(block.balance_loss().item(), balance_loss(route_tokens(logits)).item(), 1e-6);
    }
    if (z != 0) {
      EXPECT_NEAR(block.z_loss().item(), router_z_loss(logits).item(), 1e-6);
    }
    expected.backward();
    auto without = actual;
    const auto own = weight->grad().to_vector<double>();
    for (size_t i = 0; i < own.size(); ++i) without[i] -= own[i];
    return without;
  };
  const auto plain = gradient(0, 0), balanced = gradient(0.3, 0), both = gradient(0.3, 0.2);
  expect_values(balanced, plain, 1e-4);
  expect_values(both, plain, 1e-4);
}

TEST(Moe, NamesWhatDoesNotFit) {
  EXPECT_EQ(error_of([] { MoE({.dim = 0, .width = 1, .experts = 1}); }),
            "moe: dim must be at least 1, got 0");
  EXPECT_EQ(error_of([] { MoE({.dim = 1, .width = 1, .experts = 0}); }),
            "moe: experts must be at least 1, got 0");
  EXPECT_EQ(error_of([] { MoE({.dim = 1, .width = 1, .experts = 1, .shared_width = -1}); }),
            "moe: shared_width must be at least 0, got -1");
  EXPECT_EQ(error_of([] { MoE({.dim = 1, .width = 1, .experts = 1, .shared_gate = true}); }),
            "moe: shared_gate is set without a shared expert, expected shared_width above 0");
  MoEConfig config = little();
  config.chunks = 0;
  EXPECT_EQ(error_of([&] { MoE{config}; }), "moe: chunks must be at least 1, got 0");
  config.chunks = 2, config.capacity_factor = 1;
  EXPECT_EQ(error_of([&] { MoE{config}; }), "moe: chunks is 2, expected 1 with a capacity_factor");
  MoE block(little());
  block.materialize();
  EXPECT_EQ(error_of([&] { block(zeros({3, 5})); }), "moe: input is [3, 5], expected [..., 4]");
}

}  // namespace weft

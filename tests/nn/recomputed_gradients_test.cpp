// SPDX-License-Identifier: Apache-2.0
// Gradients of gradients, and hooks, through functions that backward runs again.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/ranks.h"
#include "weft/derivatives.h"
#include "weft/extend/op.h"
#include "weft/module.h"
#include "weft/ops.h"

namespace weft {

TEST(RecomputedGradients, CallHooksOfALeafOnceWithTheSum) {
  for (const bool records : {false, true}) {
    Tensor x = numbers({3}, 1, {}, f64);
    x.set_requires_grad();
    int before = 0, after = 0;
    std::vector<double> seen;
    register_hook(x, [&](const Tensor& gradient) {
      ++before;
      seen = gradient.to_vector<double>();
      return Tensor();
    });
    register_post_accumulate_grad_hook(x, [&](const Tensor&) { ++after; });
    const auto product = [&](const Tensors& given) { return Tensors{mul(given[0], x)}; };
    const Tensor h = recompute(product, {x})[0];
    const Tensor y = add(sum(recompute(product, {h})[0]), sum(x));
    backward({y}, {}, {.create_graph = records});
    EXPECT_EQ(before, 1);
    EXPECT_EQ(after, 1);
    const double value = x.to_vector<double>()[0];
    EXPECT_NEAR(seen[0], 3 * value * value + 1, 1e-12);
    x.set_grad({});
  }
}

/// The calls in two backwards through recomputed calls of an op that has a definition only.
static int64_t calls_of_recorded_gradient(int layers, int* hooks) {
  const Op op(
      {.name = "defined",
       .rule = "... -> ...",
       .takes = {anything()},
       .forward = [](const Call& c) { std::copy_n(c.in(0).as<double>(), 3, c.out().as<double>()); },
       .definition = [](std::span<const Tensor> x,
                        const Attributes&) { return Tensors{mul(x[0], sigmoid(x[0]))}; }});
  Tensor x = numbers({3}, 1, {}, f64);
  x.set_requires_grad();
  Tensor h = mul(x, 6.0);
  register_hook(h, [hooks](const Tensor&) {
    ++*hooks;
    return Tensor();
  });
  const auto layer = [&](const Tensors& given) { return Tensors{op(given)}; };
  for (int i = 0; i < layers; ++i) h = recompute(layer, {h})[0];
  const Tensor y = sum(h);
  const int64_t before = engine_statistics().calls;
  const Tensor first = grad({y}, {x}, {.create_graph = true})[0];
  EXPECT_TRUE(grad({sum(first)}, {x})[0]);
  return engine_statistics().calls - before;
}

TEST(RecomputedGradients, OfADefinitionEndAtItsOperands) {
  int hooks = 0;
  const int64_t few = calls_of_recorded_gradient(3, &hooks);
  EXPECT_EQ(hooks, 2);  // once in each backward
  const int64_t many = calls_of_recorded_gradient(12, &hooks);
  EXPECT_LE(many, 5 * few);
}

}  // namespace weft

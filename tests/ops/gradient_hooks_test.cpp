// SPDX-License-Identifier: Apache-2.0
#include "weft/derivatives.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/error.h"
#include "weft/extend/op.h"
#include "weft/extend/testing.h"
#include "weft/ops.h"

namespace weft {

static Tensor hooked_numbers(const Shape& shape, int seed = 1) {
  return numbers(shape, seed, {}, f64);
}

TEST(GradientHooks, SeeAndChangeGradients) {
  Tensor x = hooked_numbers({3});
  x.set_requires_grad();
  Tensor h = mul(x, 2.0);
  retain_grad(h);
  int seen = 0;
  GradientHookHandle doubled = register_hook(h, [&](const Tensor& gradient) {
    ++seen;
    return mul(gradient, 2.0);
  });
  register_post_accumulate_grad_hook(x, [&](const Tensor& leaf) {
    ++seen;
    EXPECT_EQ(leaf.grad().to_vector<double>()[0], 4);
  });
  EXPECT_EQ(grad_fn(h), "mul_number");
  EXPECT_EQ(grad_fn(x), "");
  const Tensor y = sum(h);
  backward({y}, {}, {.retain_graph = true});
  EXPECT_EQ(seen, 2);
  EXPECT_EQ(h.grad().to_vector<double>()[0], 2);
  doubled.remove();
  x.set_grad({});
  register_hook(x, [&](const Tensor&) { return full({3}, 4.0, {.dtype = f64}); });
  y.backward();
  EXPECT_EQ(seen, 3);
  EXPECT_EQ(x.grad().to_vector<double>()[2], 4);
}

TEST(GradientHooks, ThatThrowLeaveTheEngineUsable) {
  Tensor x = hooked_numbers({3});
  x.set_requires_grad();
  const Tensor h = mul(x, 2.0);
  GradientHookHandle handle =
      register_hook(h, [](const Tensor&) -> Tensor { fail("hook: no, expected yes"); });
  EXPECT_EQ(error_of([&] { sum(h).backward(); }), "hook: no, expected yes");
  handle.remove();
  register_hook(h, [](const Tensor&) { return zeros({2}, {.dtype = f64}); });
  EXPECT_EQ(error_of([&] { sum(h).backward(); }),
            "register_hook: the gradient that a hook of mul_number returned is [2], expected [3], "
            "laid out as it was");
  sum(square(x)).backward();
  EXPECT_TRUE(x.grad());
  register_post_accumulate_grad_hook(x, [](const Tensor&) { fail("after: no, expected yes"); });
  EXPECT_EQ(error_of([&] { sum(square(x)).backward(); }), "after: no, expected yes");
  EXPECT_EQ(grad({sum(square(x))}, {x})[0].to_vector<double>()[0], 2 * x.to_vector<double>()[0]);
}

TEST(GradientHooks, OutliveTheHandleOfTheirLeaf) {
  Tensor y;
  double seen = 0;
  {
    Tensor x = hooked_numbers({3});
    x.set_requires_grad();
    register_post_accumulate_grad_hook(x, [&](const Tensor& leaf) {
      seen = leaf.grad().to_vector<double>()[0] + leaf.to_vector<double>()[0];
      const NoGrad no_grad;
      fill_(leaf, 7);
    });
    y = sum(x);
  }
  y.backward();
  EXPECT_EQ(seen, 1 + hooked_numbers({3}).to_vector<double>()[0]);
}

TEST(GradientHooks, AreNotKeptByTheirHandle) {
  const auto held = std::make_shared<int>(1);
  GradientHookHandle of_result, of_leaf;
  {
    Tensor x = hooked_numbers({3});
    x.set_requires_grad();
    const Tensor h = mul(x, 2.0);
    of_result = register_hook(h, [held](const Tensor&) { return Tensor(); });
    of_leaf = register_post_accumulate_grad_hook(x, [held](const Tensor&) {});
    EXPECT_EQ(held.use_count(), 3);
  }
  EXPECT_EQ(held.use_count(), 1);
  of_result.remove();
  of_leaf.remove();
}

TEST(GradientHooks, ThatFreeTensorsAndCallOpsLeaveTheEngineUsable) {
  Tensor x = hooked_numbers({3});
  x.set_requires_grad();
  Tensor a = sin(x), b = exp(a), y = sum(mul(a, b));
  register_hook(b, [&](const Tensor& gradient) {
    a = b = y = Tensor();
    const ContextSetting<&Context::grad_enabled> recording(true);
    Tensor other = hooked_numbers({2});
    other.set_requires_grad();
    sum(square(other)).backward();
    return mul(gradient, 1.0);
  });
  const Tensor kept = y;
  kept.backward();
  const double value = x.to_vector<double>()[0], s = std::sin(value);
  EXPECT_NEAR(x.grad().to_vector<double>()[0], std::cos(value) * std::exp(s) * (1 + s), 1e-12);
}

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/ops/gate.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/anomaly.h"
#include "weft/derivatives.h"
#include "weft/error.h"
#include "weft/extend/op.h"
#include "weft/extend/testing.h"
#include "weft/ops.h"

namespace weft {

/// An op that computes a sigmoid(a) b, with a gradient that may be wrong.
static Op shadowed_gate(std::function<void(const Grad&)> backward) {
  return Op({.name = "gate",
             .rule = "..., ... -> ...",
             .takes = {anything()},
             .forward = &compute_gate,
             .backward = std::move(backward),
             .samples = {{{{5, 3}, {5, 3}}}}});
}

template <class Call> static std::string runtime_error_of(const Call& call) {
  return error_of<std::runtime_error>(call);
}

TEST(Shadow, NamesOpsWithAWrongGradient) {
  const std::vector<std::function<void(const Grad&)>> wrong = {
      [](const Grad& g) { g.give(0, mul(g.grad(), g.in(1))); },
      [](const Grad& g) { g.give(0, mul(g.grad(), sigmoid(g.in(0)))); },
      [](const Grad& g) { g.give(1, mul(g.grad(), sigmoid(g.in(0)))); },
      [](const Grad& g) { g.give(1, neg(mul(g.grad(), mul(g.in(0), sigmoid(g.in(0)))))); },
      [](const Grad& g) { g.give(1, mul(mul(g.grad(), 1.01), silu(g.in(0)))); },
      [](const Grad& g) { g.give(1, mul(g.grad(), gelu(g.in(0)))); },
      [](const Grad& g) { g.give(1, mul(g.grad(), silu(g.in(1)))); },
      [](const Grad& g) { g.give(1, silu(g.in(0))); },
      [](const Grad& g) { g.give(1, zeros_like(g.grad())); },
      [](const Grad& g) { g.give(1, mul(g.grad(), flip(silu(g.in(0)), {0}))); }};
  for (size_t i = 0; i < wrong.size(); ++i) {
    on_mesh({{"a", 2}}, [&](const DeviceMesh& mesh) {
      const Op op = shadowed_gate(wrong[i]);
      Tensor a = numbers({5, 3}, 1, Sharding(mesh, {Shard(0)})),
             b = numbers({5, 3}, 4, Sharding(mesh, {Shard(0)}));
      a.set_requires_grad();
      b.set_requires_grad();
      const ShadowScope shadow;
      const std::string found = runtime_error_of([&] { sum(square(op({a, b}))).backward(); });
      EXPECT_TRUE(found.starts_with("gate: the gradient of its operands is off by ")) << i << found;
    });
  }
}

TEST(Shadow, AcceptsWhatIsRight) {
  on_mesh({{"a", 2}, {"b", 2}}, [](const DeviceMesh& mesh) {
    Tensor x = numbers({5, 4}, 1, Sharding(mesh, {Shard(0)})),
           w = numbers({4, 7}, 2, Sharding(mesh, {Replicate(), Shard(1)}));
    x.set_requires_grad();
    w.set_requires_grad();
    const ShadowScope shadow;
    const Tensor y = sum(square(softmax(rms_norm(matmul(x, w), {}, 1e-5))));
    const Tensor dx = grad({y}, {x}, {.create_graph = true})[0];
    sum(square(dx)).backward();
    EXPECT_TRUE(w.grad());
  });
}

TEST(Shadow, AcceptsCornersAndChangesOfWhatIsNotSaved) {
  Tensor x = Tensor::of({-1.0, 0.0, 1.0}).to(f64), other = numbers({3}, 1, {}, f64);
  x.set_requires_grad();
  const ShadowScope shadow;
  sum(relu(x)).backward();
  sum(clip(x, -1.0, 1.0)).backward();
  const Tensor y = sum(add(x, other));
  {
    const NoGrad no_grad;
    add_(other, 1.0);
  }
  y.backward();
  EXPECT_EQ(x.grad().to_vector<double>()[2], 3);
}

/// An op of f32 alone is checked in f32, more coarsely.
TEST(Shadow, NamesOpsWithoutF64) {
  const auto gate_of = [](double factor) {
    return Op({.name = "gate",
               .rule = "..., ... -> ...",
               .takes = {{.dtypes = {f32}}, {.dtypes = {f32}}},
               .forward = &compute_gate,
               .backward = [factor](const Grad& g) {
                 g.give(1, mul(mul(g.grad(), factor), silu(g.in(0))));
               }});
  };
  Tensor a = numbers({5, 3}, 1), b = numbers({5, 3}, 4);
  b.set_requires_grad();
  const ShadowScope shadow;
  sum(gate_of(1)({a, b})).backward();
  const std::string found = runtime_error_of([&] { sum(gate_of(1.1)({a, b})).backward(); });
  EXPECT_TRUE(found.starts_with("gate: the gradient of its operands is off by ")) << found;
}

}  // namespace weft

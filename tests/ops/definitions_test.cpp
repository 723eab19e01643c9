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

using Operands = std::span<const Tensor>;

TEST(Definitions, AreWhatTheOpsCompute) {
  int count = 0;
  for (const Op& op : all_ops()) {
    if (!op.spec().definition) continue;
    EXPECT_EQ(check_definition(op), "");
    ++count;
  }
  EXPECT_GE(count, 20);
}

/// An op that computes a sigmoid(a) b, and says that it means something else.
static Op gate(OpDefinition definition) {
  return Op({.name = "gate",
             .rule = "..., ... -> ...",
             .takes = {anything()},
             .forward = &compute_gate,
             .definition = std::move(definition),
             .samples = {{{{5, 3}, {5, 3}}}}});
}

static Tensor gated(const Tensor& a, const Tensor& b) { return mul(mul(a, sigmoid(a)), b); }

TEST(Definitions, ThatAreWrongAreFound) {
  EXPECT_EQ(check_definition(
                gate([](Operands x, const Attributes&) { return Tensors{gated(x[0], x[1])}; })),
            "");
  const std::vector<Tensor (*)(const Tensor&, const Tensor&)> wrong = {
      [](auto& a, auto& b) { return gated(b, a); },
      [](auto& a, auto& b) { return mul(sigmoid(a), b); },
      [](auto& a, auto& b) { return neg(gated(a, b)); },
      [](auto& a, auto& b) { return gated(mul(a, 1.001), b); },
      [](auto& a, auto& b) { return add(gated(a, b), 0.01); },
      [](auto& a, auto& b) { return mul(mul(a, tanh(a)), b); },
      [](auto& a, auto& b) { return gated(relu(a), b); },
      [](auto& a, auto& b) { return sum(gated(a, b), {1}, true); },
      [](auto& a, auto& b) { return gated(a, flip(b, {0})); },
      [](auto& a, auto&) { return gated(a, a); }};
  for (size_t i = 0; i < wrong.size(); ++i) {
    const Op op =
        gate([f = wrong[i]](Operands x, const Attributes&) { return Tensors{f(x[0], x[1])}; });
    EXPECT_TRUE(check_definition(op).starts_with("gate: result 0 ")) << i;
  }
}

/// The gradient of an op without a backward is that of its definition, to any order.
TEST(Definitions, AreDifferentiated) {
  const Op op = gate([](Operands x, const Attributes&) { return Tensors{gated(x[0], x[1])}; });
  const GradcheckReport report = gradcheck(op);
  EXPECT_TRUE(report.ok()) << report;
  EXPECT_EQ(gradgradcheck(op), "");
}

}  // namespace weft

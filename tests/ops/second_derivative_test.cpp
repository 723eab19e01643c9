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

static std::vector<std::string> ops_with_gradients() {
  std::vector<std::string> names;
  for (const Op& op : all_ops()) {
    if (op.spec().backward && op.spec().differentiable) names.push_back(op.spec().name);
  }
  return names;
}

static const Op& op_named(const std::string& name) {
  for (const Op& op : all_ops()) {
    if (op.spec().name == name) return op;
  }
  fail("test: op is ", name, ", expected a built-in one");
}

class SecondDerivative : public testing::TestWithParam<std::string> {};

TEST_P(SecondDerivative, EqualsCentralDifferencesOfTheFirst) {
  EXPECT_EQ(gradgradcheck(op_named(GetParam())), "");
}

/// A sample of the sweep's layouts of operands and of the result's gradient.
TEST_P(SecondDerivative, IsThatOfOneDeviceInLayouts) {
  for (const std::vector<MeshAxis>& axes :
       {std::vector<MeshAxis>{{"a", 4}}, std::vector<MeshAxis>{{"a", 2}, {"b", 2}},
        std::vector<MeshAxis>{{"a", 3}}}) {
    const SweepReport report = sweep_second(op_named(GetParam()), {.axes = axes, .most = 24});
    EXPECT_EQ(report.wrong, 0) << report;
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, SecondDerivative, testing::ValuesIn(ops_with_gradients()),
                         [](const auto& test) { return test.param; });

}  // namespace weft

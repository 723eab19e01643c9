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

INSTANTIATE_TEST_SUITE_P(Ops, SecondDerivative, testing::ValuesIn(ops_with_gradients()),
                         [](const auto& test) { return test.param; });

}  // namespace weft

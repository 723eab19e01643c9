// SPDX-License-Identifier: Apache-2.0
#include "tests/support/jacobian.h"

#include <gtest/gtest.h>

#include <iostream>

#include "tests/support/sweep_values.h"
#include "weft/ops/elementwise.h"

namespace weft {

/// Third derivatives times step^2, plus the rounding of f64 divided by the step.
static constexpr double kJacobianBound = 1e-6;

static std::vector<std::string> differentiable_ops() {
  std::vector<std::string> names;
  for (const Op& op : all_ops()) {
    if (op.spec().backward && op.spec().differentiable) names.push_back(op.spec().name);
  }
  return names;
}

class Jacobian : public testing::TestWithParam<std::string> {};

TEST_P(Jacobian, EqualsCentralDifferences) {
  for (const Op& op : all_ops()) {
    if (op.spec().name != GetParam()) continue;
    int operands = 0;
    std::string skipped;
    for (const OpSample& sample : samples_of(op)) {
      JacobianReport report = check_jacobian(op, sample, 5);
      operands += report.operands;
      if (!report.skipped.empty()) skipped = report.skipped;
      EXPECT_LE(report.worst, kJacobianBound) << GetParam();
    }
    EXPECT_GT(operands, 0) << GetParam() << ": nothing compared; " << skipped;
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Jacobian, testing::ValuesIn(differentiable_ops()),
                         [](const auto& test) { return test.param; });

TEST(Jacobian, SeesAWrongGradient) {
  auto cube = [](double factor) {
    return Op({.name = "cube",
               .rule = "... -> ...",
               .takes = {{.dtypes = {f64}}},
               .forward =
                   [](const Call& c) {
                     for (int64_t i = 0; i < c.in(0).numel(); ++i) {
                       double x = c.in(0).as<double>()[i];
                       c.out().as<double>()[i] = x * x * x;
                     }
                   },
               .backward =
                   [factor](const Grad& g) {
                     g.give(0, mul(mul(g.grad(), factor), mul(g.in(0), g.in(0))));
                   },
               .samples = {{{{7}}}}});
  };
  EXPECT_LE(check_jacobian(cube(3), cube(3).spec().samples[0], 5).worst, kJacobianBound);
  EXPECT_GT(check_jacobian(cube(2.9), cube(2.9).spec().samples[0], 5).worst, 0.01);
}

}  // namespace weft

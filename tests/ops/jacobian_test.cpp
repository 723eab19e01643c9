// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/testing.h"

#include <gtest/gtest.h>

#include "weft/error.h"
#include "weft/ops/elementwise.h"

namespace weft {

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
    const GradcheckReport report = gradcheck(op);
    EXPECT_TRUE(report.ok()) << report;
    EXPECT_EQ(report.bound, 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Jacobian, testing::ValuesIn(differentiable_ops()),
                         [](const auto& test) { return test.param; });

/// x^3 with the gradient `factor` x^2, in the dtype T only.
template <class T> static Op cube(double factor, DType dtype) {
  return Op({.name = "cube",
             .rule = "... -> ...",
             .takes = {{.dtypes = {dtype}}},
             .forward =
                 [](const Call& c) {
                   for (int64_t i = 0; i < c.in(0).numel(); ++i) {
                     T x = c.in(0).as<T>()[i];
                     c.out().as<T>()[i] = x * x * x;
                   }
                 },
             .backward =
                 [factor](const Grad& g) {
                   g.give(0, mul(mul(g.grad(), factor), mul(g.in(0), g.in(0))));
                 },
             .samples = {{{{7}}}}});
}

TEST(Jacobian, SeesAWrongGradient) {
  EXPECT_TRUE(gradcheck(cube<double>(3, f64)).ok());
  EXPECT_GT(gradcheck(cube<double>(2.9, f64)).worst, 0.01);
}

/// A custom op takes f32 unless it says otherwise: the differences have a larger step then.
TEST(Jacobian, ChecksAnOpOfF32Only) {
  const GradcheckReport right = gradcheck(cube<float>(3, f32));
  EXPECT_TRUE(right.ok()) << right;
  EXPECT_LE(right.worst, 2e-3);
  EXPECT_EQ(concat(right).substr(0, 9), "1 operand");
  EXPECT_FALSE(gradcheck(cube<float>(2.9, f32)).ok());
}

TEST(Jacobian, NamesWhyNothingIsCompared) {
  Op op({.name = "flag",
         .rule = "... -> ...",
         .forward = [](const Call&) {},
         .differentiable = false,
         .samples = {{{{7}}}}});
  const GradcheckReport report = gradcheck(op);
  EXPECT_FALSE(report.ok());
  EXPECT_EQ(concat(report), "nothing compared: no result requires a gradient");
}

}  // namespace weft

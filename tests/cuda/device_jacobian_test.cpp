// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/device.h"
#include "weft/extend/testing.h"

namespace weft {

/// Backward of every op in f64 on a GPU, against difference quotients of its forward there.
class DeviceJacobian : public OnGpu, public testing::WithParamInterface<std::string> {};

static std::vector<std::string> differentiable_ops() {
  std::vector<std::string> names;
  for (const Op& op : all_ops()) {
    if (op.spec().backward && op.spec().differentiable) names.push_back(op.spec().name);
  }
  return names;
}

TEST_P(DeviceJacobian, EqualsCentralDifferences) {
  for (const Op& op : all_ops()) {
    if (op.spec().name != GetParam()) continue;
    const GradcheckReport report = gradcheck(op, 5, gpu);
    EXPECT_TRUE(report.ok()) << report;
  }
}

INSTANTIATE_TEST_SUITE_P(, DeviceJacobian, testing::ValuesIn(differentiable_ops()),
                         [](const auto& test) { return test.param; });

}  // namespace weft

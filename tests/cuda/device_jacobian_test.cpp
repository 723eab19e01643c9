// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/device.h"
#include "tests/support/jacobian.h"
#include "tests/support/sweep_values.h"

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
    int operands = 0;
    for (const OpSample& sample : samples_of(op)) {
      const JacobianReport report = check_jacobian(op, sample, 5, gpu);
      operands += report.operands;
      EXPECT_LE(report.worst, 1e-6) << GetParam();
    }
    EXPECT_GT(operands, 0) << GetParam() << ": nothing compared";
  }
}

INSTANTIATE_TEST_SUITE_P(, DeviceJacobian, testing::ValuesIn(differentiable_ops()),
                         [](const auto& test) { return test.param; });

}  // namespace weft

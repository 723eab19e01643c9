// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "tests/cuda/device.h"
#include "weft/extend/testing.h"

namespace weft {

/// Every op with operands on a GPU in sampled layouts, over ranks that share it, against one CPU.
class DeviceSweep : public OnGpu, public testing::WithParamInterface<std::string> {};

static std::vector<std::string> names_of_all_ops() {
  std::vector<std::string> names;
  for (const Op& op : all_ops()) names.push_back(op.spec().name);
  return names;
}

TEST_P(DeviceSweep, EqualsOneCpu) {
  for (const Op& op : all_ops()) {
    if (op.spec().name != GetParam()) continue;
    SweepReport total;
    total += sweep(op, {.axes = {{"a", 4}}, .most = 24, .percent = 100, .seed = 1, .device = gpu});
    total += sweep(op, {.axes = {{"a", 2}, {"b", 2}}, .most = 16, .seed = 2, .device = gpu});
    total += sweep(op, {.axes = {{"a", 3}}, .most = 12, .seed = 3, .device = gpu});
    EXPECT_GT(total.ran, 0);
    EXPECT_EQ(total.wrong, 0);
    for (const std::string& mismatch : total.mismatches) ADD_FAILURE() << mismatch;
  }
}

INSTANTIATE_TEST_SUITE_P(, DeviceSweep, testing::ValuesIn(names_of_all_ops()),
                         [](const auto& test) { return test.param; });

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "src/cuda/runtime.h"
#include "weft/device.h"

namespace weft {

inline constexpr Device gpu{DeviceKind::cuda, 0};

/// Tests that need a GPU, or the emulated one; they are skipped, and say why, where there is none.
class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::why_no_device();
  }
};

}  // namespace weft

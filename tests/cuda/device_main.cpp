// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdio>

#include "src/device/cuda/runtime.h"

/// ctest's exit code for a skipped test.
static constexpr int kSkipped = 77;

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (weft::cuda::device_count() == 0) {
    std::printf("skipped: %s\n", weft::cuda::why_no_device().c_str());
    return kSkipped;
  }
  return RUN_ALL_TESTS();
}

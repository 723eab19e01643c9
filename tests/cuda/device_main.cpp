// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "src/device/cuda/runtime.h"
#ifdef WEFT_CUDA_EMULATED
#include "src/device/emulated/device.h"
#endif

/// ctest's exit code for a skipped test.
static constexpr int kSkipped = 77;

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
#ifdef WEFT_CUDA_EMULATED
  if (const char* seed = std::getenv("WEFT_EMULATED_SEED")) {
    weft::cuda::emulated::run_at_random(std::strtoull(seed, nullptr, 10));
  }
#endif
  if (weft::cuda::device_count() == 0) {
    std::printf("skipped: %s\n", weft::cuda::why_no_device().c_str());
    return kSkipped;
  }
  return RUN_ALL_TESTS();
}

// SPDX-License-Identifier: Apache-2.0
#include "src/device/cuda/runtime.h"

#include "src/device/cuda/checked.h"

namespace weft::cuda {

static __global__ void spin(uint64_t nanoseconds) {
  uint64_t begin = 0, now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < nanoseconds);
}

void delay(const Stream& stream, int microseconds) {
  const auto nanoseconds = static_cast<uint64_t>(microseconds) * 1000;
  spin<<<1, 1, 0, static_cast<cudaStream_t>(stream.handle)>>>(nanoseconds);
  check("kernel launch", cudaGetLastError());
}

}  // namespace weft::cuda

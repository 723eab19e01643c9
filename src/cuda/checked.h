// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "weft/stream.h"

namespace weft::cuda {

/// std::runtime_error naming the call when it failed.
void check(const char* call, cudaError_t error);

/// Nobody is told of an error: not the next kernel launch either, which asks for the last one.
inline void ignore(cudaError_t error) noexcept {
  if (error != cudaSuccess) cudaGetLastError();
}

/// As CUDA knows it.
inline cudaStream_t handle_of(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.handle);
}

}  // namespace weft::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "weft/stream.h"

namespace weft::cuda {

/// Throws std::runtime_error with the name of the call when it failed.
void check(const char* call, cudaError_t error);

/// Discards an error, so that the check after the next kernel launch does not see it either.
inline void ignore(cudaError_t error) noexcept {
  if (error != cudaSuccess) cudaGetLastError();
}

/// The stream's CUDA handle.
inline cudaStream_t handle_of(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.handle);
}

}  // namespace weft::cuda

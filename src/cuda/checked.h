// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

namespace weft::cuda {

/// std::runtime_error naming the call when it failed.
void check(const char* call, cudaError_t error);

}  // namespace weft::cuda

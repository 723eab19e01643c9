// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/matmul/batched_product.h"
#include "weft/device.h"

namespace weft::cuda {

/// Queues the products on the current stream of `device`, where their memory lies: by cuBLASLt, or
/// by a plain kernel where that has no algorithm for them (integers, strides of neither kind).
void multiply(const BatchedProduct& batch, Device device);

/// Whether cuBLASLt is for the products: makes its descriptions of them, for checks without a
/// device. std::runtime_error when it refuses one.
bool is_described_by_cublaslt(const BatchedProduct& batch);

/// By cuBLASLt: false, and nothing is queued, where it does not do it.
bool multiply_by_cublaslt(const BatchedProduct& batch, Device device);

}  // namespace weft::cuda

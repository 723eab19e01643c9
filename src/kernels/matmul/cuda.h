// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "src/kernels/matmul/batched_product.h"
#include "weft/device.h"

namespace weft::cuda {

/// Returns whether the products are for cuBLASLt, and creates its descriptors, for checks without a
/// device. std::runtime_error when it rejects one.
bool is_described_by_cublaslt(const BatchedProduct& batch);

/// Computes them by cuBLASLt; returns false, with nothing queued, when it does not support them.
bool multiply_by_cublaslt(const BatchedProduct& batch, Device device);

/// Computes products of one dtype by one grouped call of cuBLAS; returns false, with nothing
/// queued, when it does not support them.
bool multiply_each_by_cublas(std::span<const Product> products, Device device);

}  // namespace weft::cuda

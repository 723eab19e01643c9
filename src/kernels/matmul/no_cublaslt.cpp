// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/matmul/product.h"

namespace weft::cuda {

bool is_described_by_cublaslt(const BatchedProduct&) { return false; }
bool multiply_by_cublaslt(const BatchedProduct&, Device) { return false; }
bool multiply_each_by_cublas(std::span<const Product>, Device) { return false; }

}  // namespace weft::cuda

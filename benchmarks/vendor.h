// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "weft/tensor.h"

namespace weft::bench {

// NVIDIA's libraries called without weft around them, on the current stream of the tensors' device:
// what weft's ops are compared with. A call is made ready once and keeps its tensors; it is empty
// where the library is not there or does not do it.
using VendorCall = std::function<void()>;

/// c = a b of bf16 matrices, dense by row or by column, by cuBLASLt's first heuristic.
VendorCall cublaslt_product(const Tensor& a, const Tensor& b, const Tensor& c);

/// Causal attention of bf16 tensors as weft::attention takes them, by a cuDNN graph: forward, and
/// forward and backward.
VendorCall cudnn_attention(const Tensor& q, const Tensor& k, const Tensor& v, bool backward);

}  // namespace weft::bench

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "weft/tensor.h"

namespace weft::bench {

// Direct calls of NVIDIA's libraries on the current stream of the tensors' device, for comparison
// with weft's ops. A call is prepared once and keeps its tensors; it is empty when the library is
// missing or does not support it.
using VendorCall = std::function<void()>;

/// c = a b of bf16 matrices, dense by row or by column, by cuBLASLt's first heuristic.
VendorCall cublaslt_product(const Tensor& a, const Tensor& b, const Tensor& c);

/// Causal attention of bf16 tensors with the layout of weft::attention, by a cuDNN graph: forward,
/// or forward and backward.
VendorCall cudnn_attention(const Tensor& q, const Tensor& k, const Tensor& v, bool backward);

}  // namespace weft::bench

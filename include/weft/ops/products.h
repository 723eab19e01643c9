// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

/// a [..., m, k] times b [..., k, n] is [..., m, n]. Leading dims broadcast; transposed views are
/// not copied. Integers wrap; for bool, an element is true if any pair of factors is.
WEFT_API Tensor matmul(const Tensor& a, const Tensor& b);
/// x [..., k] times the transpose of weight [n, k] (+ bias [n]) is [..., n].
WEFT_API Tensor linear(const Tensor& x, const Tensor& weight);
WEFT_API Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias);

}  // namespace weft

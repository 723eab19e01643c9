// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

/// a [..., m, k] times b [..., k, n]: [..., m, n]; leading dims broadcast, transposed views are
/// free. Integers wrap; of bool: whether any pair is true.
WEFT_API Tensor matmul(const Tensor& a, const Tensor& b);
/// x [..., k] times the transpose of weight [n, k] (+ bias [n]): [..., n].
WEFT_API Tensor linear(const Tensor& x, const Tensor& weight);
WEFT_API Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias);

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

/// a [..., m, k] times b [..., k, n] is [..., m, n]. Leading dims broadcast; transposed views are
/// not copied. Integers wrap; for bool, an element is true if any pair of factors is.
WEFT_API Tensor matmul(const Tensor& a, const Tensor& b);
/// x [..., k] times the transpose of weight [n, k] (+ bias [n]) is [..., n].
WEFT_API Tensor linear(const Tensor& x, const Tensor& weight);
WEFT_API Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias);

/// Sums the products of a and b over pairs of dims. The result has the other dims of a, then those
/// of b.
WEFT_API Tensor tensordot(const Tensor& a, const Tensor& b, const std::vector<int>& dims_of_a,
                          const std::vector<int>& dims_of_b);
/// The same over the last `count` dims of a and the first of b.
WEFT_API Tensor tensordot(const Tensor& a, const Tensor& b, int count = 2);
/// The sum of products along `dim`, which counts from the end where a and b differ in dims; the
/// other dims broadcast. bf16 and f16 accumulate in f32.
WEFT_API Tensor vecdot(const Tensor& a, const Tensor& b, int dim = -1);
/// a [m] times b [n]: [m, n].
WEFT_API Tensor outer(const Tensor& a, const Tensor& b);
/// The cross product of vectors of 3 along `dim`, as in vecdot.
WEFT_API Tensor cross(const Tensor& a, const Tensor& b, int dim = -1);
/// The sum of elements (i, i + offset) of the last two dims.
WEFT_API Tensor trace(const Tensor& a, int64_t offset = 0);

}  // namespace weft

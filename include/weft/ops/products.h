// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "weft/export.h"
#include "weft/number.h"
#include "weft/tensor.h"

namespace weft {

/// a [..., m, k] times b [..., k, n] is [..., m, n]. Leading dims broadcast; transposed views are
/// not copied. Integers wrap; for bool, an element is true if any pair of factors is.
WEFT_API Tensor matmul(const Tensor& a, const Tensor& b);
/// x [..., k] times the transpose of weight [n, k] (+ bias [n]) is [..., n].
WEFT_API Tensor linear(const Tensor& x, const Tensor& weight);
WEFT_API Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias);
/// x [..., k] times the transpose of weight [n, k], computed in 8 bits with dynamic scales
/// (torchao's tensorwise recipe): each factor is divided by its greatest magnitude / 448 and
/// rounded to f8_e4m3; gradients by theirs / 57344, to f8_e5m2. Sums are of f32. The greatest
/// magnitudes are those of the whole tensors, however these are sharded. Zero, or an infinity or
/// NaN, in a tensor has the effect that it has in f32, or makes the result NaN.
WEFT_API Tensor float8_linear(const Tensor& x, const Tensor& weight);

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

/// Sums of products of the tensors over the labels that the result lacks, in Einstein's notation:
/// "bij,bjk->bik". "..." stands for broadcast dims; without "->" the result has the labels that
/// occur once, in alphabetical order. Operands are contracted from left to right, by matmul.
WEFT_API Tensor einsum(std::string_view equation, const Tensors& operands);

/// beta * c + alpha * (a b) of matrices [m, k] and [k, n]; of a matrix and a vector; of vectors
/// (outer). NaN in c does not count when beta is 0.
WEFT_API Tensor addmm(const Tensor& c, const Tensor& a, const Tensor& b, Number beta = 1,
                      Number alpha = 1);
WEFT_API Tensor addmv(const Tensor& c, const Tensor& a, const Tensor& b, Number beta = 1,
                      Number alpha = 1);
WEFT_API Tensor addr(const Tensor& c, const Tensor& a, const Tensor& b, Number beta = 1,
                     Number alpha = 1);
/// The same of batches of matrices [b, m, k] and [b, k, n], each for itself or summed.
WEFT_API Tensor baddbmm(const Tensor& c, const Tensor& a, const Tensor& b, Number beta = 1,
                        Number alpha = 1);
WEFT_API Tensor addbmm(const Tensor& c, const Tensor& a, const Tensor& b, Number beta = 1,
                       Number alpha = 1);

/// A matrix [m, n] times a vector [n].
WEFT_API Tensor mv(const Tensor& a, const Tensor& b);
/// The sum of products of two vectors.
WEFT_API Tensor dot(const Tensor& a, const Tensor& b);
/// Sums of products over the last dims.
WEFT_API Tensor inner(const Tensor& a, const Tensor& b);
/// The Kronecker product.
WEFT_API Tensor kron(const Tensor& a, const Tensor& b);

/// Distances (p-norms of the differences) between rows of a [..., n, d] and b [..., m, d]:
/// [..., n, m].
WEFT_API Tensor cdist(const Tensor& a, const Tensor& b, double p = 2);
/// The p-norm of all elements of a - b.
WEFT_API Tensor dist(const Tensor& a, const Tensor& b, double p = 2);
/// The integral along `dim` by the trapezoidal rule, of values at `x` or `dx` apart.
WEFT_API Tensor trapezoid(const Tensor& y, const Tensor& x, int dim = -1);
WEFT_API Tensor trapezoid(const Tensor& y, double dx = 1, int dim = -1);
WEFT_API Tensor cumulative_trapezoid(const Tensor& y, const Tensor& x, int dim = -1);
WEFT_API Tensor cumulative_trapezoid(const Tensor& y, double dx = 1, int dim = -1);
/// The powers 0 to n - 1 of a vector as columns, descending unless `increasing`; n < 0 is its size.
WEFT_API Tensor vander(const Tensor& a, int64_t n = -1, bool increasing = false);

}  // namespace weft

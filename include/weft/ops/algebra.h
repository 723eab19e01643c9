// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "weft/export.h"
#include "weft/number.h"
#include "weft/tensor.h"

namespace weft {

// PyTorch's functions of matrices and vectors that are compositions of products.

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
/// The covariances of the rows of a matrix [variables, observations], and their correlations.
WEFT_API Tensor cov(const Tensor& a, double correction = 1);
WEFT_API Tensor corrcoef(const Tensor& a);
/// The integral along `dim` by the trapezoidal rule, of values at `x` or `dx` apart.
WEFT_API Tensor trapezoid(const Tensor& y, const Tensor& x, int dim = -1);
WEFT_API Tensor trapezoid(const Tensor& y, double dx = 1, int dim = -1);
WEFT_API Tensor cumulative_trapezoid(const Tensor& y, const Tensor& x, int dim = -1);
WEFT_API Tensor cumulative_trapezoid(const Tensor& y, double dx = 1, int dim = -1);
/// The powers 0 to n - 1 of a vector as columns, descending unless `increasing`; n < 0 is its size.
WEFT_API Tensor vander(const Tensor& a, int64_t n = -1, bool increasing = false);

}  // namespace weft

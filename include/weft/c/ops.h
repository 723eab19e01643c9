// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "weft/c/core.h"
#include "weft/c/tensors.h"

// Operations on tensors. The result is laid out as follows from the operands; what must move does,
// so that all ranks call each of them. Operands are on one mesh, or on none. They are recorded for
// backward where an operand requires a gradient.
//
// WEFT_INVALID also stands for NULL in place of a result, a handle that is not a tensor's, shapes
// that do not fit, dtypes without a common one, meshes that differ, and dims that do not exist.
// Negative dims count from the end.

/// a + b. Shapes broadcast from the right; so do those of the next six.
WEFT_C_API weft_status weft_add(weft_tensor a, weft_tensor b, weft_tensor* result);
/// a - b.
WEFT_C_API weft_status weft_sub(weft_tensor a, weft_tensor b, weft_tensor* result);
/// a * b, by elements.
WEFT_C_API weft_status weft_mul(weft_tensor a, weft_tensor b, weft_tensor* result);
/// a / b, floating also for integers.
WEFT_C_API weft_status weft_div(weft_tensor a, weft_tensor b, weft_tensor* result);
/// a to the power b.
WEFT_C_API weft_status weft_pow(weft_tensor a, weft_tensor b, weft_tensor* result);
/// The larger of both.
WEFT_C_API weft_status weft_maximum(weft_tensor a, weft_tensor b, weft_tensor* result);
/// The smaller of both.
WEFT_C_API weft_status weft_minimum(weft_tensor a, weft_tensor b, weft_tensor* result);
/// a + b for a number, which makes integers f32; so below.
WEFT_C_API weft_status weft_add_number(weft_tensor a, double b, weft_tensor* result);
/// a * b.
WEFT_C_API weft_status weft_mul_number(weft_tensor a, double b, weft_tensor* result);
/// a to the power b.
WEFT_C_API weft_status weft_pow_number(weft_tensor a, double b, weft_tensor* result);

/// The absolute value of each element.
WEFT_C_API weft_status weft_abs(weft_tensor a, weft_tensor* result);
/// e to the power a.
WEFT_C_API weft_status weft_exp(weft_tensor a, weft_tensor* result);
/// The natural logarithm.
WEFT_C_API weft_status weft_log(weft_tensor a, weft_tensor* result);
/// The square root.
WEFT_C_API weft_status weft_sqrt(weft_tensor a, weft_tensor* result);
/// The hyperbolic tangent.
WEFT_C_API weft_status weft_tanh(weft_tensor a, weft_tensor* result);
/// 1 / (1 + exp(-a)).
WEFT_C_API weft_status weft_sigmoid(weft_tensor a, weft_tensor* result);
/// a where it is positive, 0 elsewhere.
WEFT_C_API weft_status weft_relu(weft_tensor a, weft_tensor* result);
/// a / 2 * (1 + erf(a / sqrt(2))).
WEFT_C_API weft_status weft_gelu(weft_tensor a, weft_tensor* result);
/// a * sigmoid(a).
WEFT_C_API weft_status weft_silu(weft_tensor a, weft_tensor* result);
/// exp(a) divided by its sum over the last dim.
WEFT_C_API weft_status weft_softmax(weft_tensor a, weft_tensor* result);

/// The sum over `count` dims, or over all dims for a count of 0. They are removed or, with
/// `keepdims`, have size 1; so below.
WEFT_C_API weft_status weft_sum(weft_tensor a, int count, const int* dims, int keepdims,
                                weft_tensor* result);
/// The mean.
WEFT_C_API weft_status weft_mean(weft_tensor a, int count, const int* dims, int keepdims,
                                 weft_tensor* result);
/// The largest element.
WEFT_C_API weft_status weft_max(weft_tensor a, int count, const int* dims, int keepdims,
                                weft_tensor* result);
/// The smallest element.
WEFT_C_API weft_status weft_min(weft_tensor a, int count, const int* dims, int keepdims,
                                weft_tensor* result);
/// The index of the largest element along `dim`, which the result lacks: I64.
WEFT_C_API weft_status weft_argmax(weft_tensor a, int dim, weft_tensor* result);

/// The matrix product [..., m, k] x [..., k, n] -> [..., m, n].
WEFT_C_API weft_status weft_matmul(weft_tensor a, weft_tensor b, weft_tensor* result);
/// x w^T + bias for x [..., k], w [n, k] and bias [n] or {0}: a layer of a network.
WEFT_C_API weft_status weft_linear(weft_tensor x, weft_tensor w, weft_tensor bias,
                                   weft_tensor* result);
/// The sum of products over labels, "mk,kn->mn", of `count` operands.
WEFT_C_API weft_status weft_einsum(const char* equation, int count, const weft_tensor* operands,
                                   weft_tensor* result);
/// x with a x = b for square a [..., n, n] and b [..., n, k] or [n]; f32 or f64. WEFT_INVALID on
/// all ranks when a matrix is singular.
WEFT_C_API weft_status weft_solve(weft_tensor a, weft_tensor b, weft_tensor* result);

/// The same elements, in row-major order, in another shape.
WEFT_C_API weft_status weft_reshape(weft_tensor a, int ndim, const int64_t* shape,
                                    weft_tensor* result);
/// Two dims exchanged.
WEFT_C_API weft_status weft_transpose(weft_tensor a, int dim0, int dim1, weft_tensor* result);
/// Elements start, start + step, ... before stop along `dim`; negative ones count from the end.
WEFT_C_API weft_status weft_slice(weft_tensor a, int dim, int64_t start, int64_t stop, int64_t step,
                                  weft_tensor* result);
/// `count` tensors joined along `dim`; the other sizes are equal.
WEFT_C_API weft_status weft_cat(int count, const weft_tensor* tensors, int dim,
                                weft_tensor* result);
/// The elements converted to `dtype`; floating to integer rounds towards 0.
WEFT_C_API weft_status weft_cast(weft_tensor a, weft_dtype dtype, weft_tensor* result);

/// The rows of `weight` [n, d] at integer `ids` [...]: [..., d].
WEFT_C_API weft_status weft_embedding(weft_tensor weight, weft_tensor ids, weft_tensor* result);
/// The mean of the squares of a - b: one element.
WEFT_C_API weft_status weft_mse_loss(weft_tensor a, weft_tensor b, weft_tensor* result);
/// The mean over rows of -log softmax(logits) [..., n] at integer `targets` [...]: one element.
/// Targets of -100 do not count.
WEFT_C_API weft_status weft_cross_entropy(weft_tensor logits, weft_tensor targets,
                                          weft_tensor* result);

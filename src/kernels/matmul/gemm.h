// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/kernel.h"

namespace weft {

/// out[..., m, n] = a[..., m, k] @ b[..., k, n] + beta * out. Any strides: operands may be
/// transposed views. Leading dims are aligned from the right and broadcast (missing, size 1 or
/// stride 0); out has all of them. a and b have one dtype, or are both f8 on a GPU; out has it too,
/// or is f32 for f8, bf16 and f16 operands. bf16 and f16 accumulate in f32. With beta 0, out is not
/// read; with k 0 the product is zero. `bias` [n], of a's or out's dtype, is added to each row.
/// Errors name the dims that disagree. Uses the calling thread's OpenMP threads.
void gemm(const MemoryBlock& a, const MemoryBlock& b, const MemoryBlock& out, float beta = 0,
          const MemoryBlock* bias = nullptr);

/// out[n, k] = sum over all leading dims of a[..., n] * b[..., k], + beta * out: the gradient of a
/// linear layer's weight from the result's gradient and the input. Leading shapes are equal.
void gemm_over_leading(const MemoryBlock& a, const MemoryBlock& b, const MemoryBlock& out,
                       float beta = 0);

/// The three products of a linear layer: x [..., k] times the transpose of w [n, k]; its gradient
/// g [..., n] times w; and the transpose of g times x, over all leading dims.
enum class LinearProduct : uint8_t { forward, input_gradient, weight_gradient };

/// out = the product of a and b after each is divided by its scale, the greatest magnitude (an f32
/// scalar) / the greatest number of its dtype, and rounded to f8_e4m3 (f8_e5m2: the gradient, which
/// is `a`); multiplied by both scales. Adds to `out` with `accumulate`. Accumulates in f32. GPUs
/// multiply f8 by cuBLASLt, the CPU the rounded values as f32.
void float8_product(LinearProduct product, const MemoryBlock& out, const MemoryBlock& a,
                    const MemoryBlock& b, const MemoryBlock& greatest_a,
                    const MemoryBlock& greatest_b, bool accumulate);

}  // namespace weft

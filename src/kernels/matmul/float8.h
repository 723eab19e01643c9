// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/kernel.h"

namespace weft {

/// The three products of a linear layer: x [..., k] times the transpose of w [n, k]; its gradient
/// g [..., n] times w; and the transpose of g times x, over all leading dims.
enum class LinearProduct : uint8_t { forward, input_gradient, weight_gradient };

/// out = the product of a and b after each is divided by its scale, the greatest magnitude (an f32
/// scalar) / the greatest number of its dtype, and rounded to f8_e4m3 (f8_e5m2: the gradient, which
/// is `a`); multiplied by both scales. Adds to `out` with `accumulate`. Accumulates in f32. GPUs
/// multiply f8 by cuBLASLt, the CPU the rounded values as f32.
WEFT_KERNEL(void, float8_product,
            (LinearProduct product, const MemoryBlock& out, const MemoryBlock& a,
             const MemoryBlock& b, const MemoryBlock& greatest_a, const MemoryBlock& greatest_b,
             bool accumulate),
            (product, out, a, b, greatest_a, greatest_b, accumulate))

}  // namespace weft

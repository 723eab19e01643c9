// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

/// x [..., k] times the transpose of weight [n, k], computed in 8 bits with dynamic scales
/// (torchao's tensorwise recipe): each factor is divided by its greatest magnitude / 448 and
/// rounded to f8_e4m3; gradients by theirs / 57344, to f8_e5m2. Sums are of f32. The greatest
/// magnitudes are those of the whole tensors, however these are sharded. Zero, or an infinity or
/// NaN, in a tensor has the effect that it has in f32, or makes the result NaN.
WEFT_API Tensor float8_linear(const Tensor& x, const Tensor& weight);

}  // namespace weft

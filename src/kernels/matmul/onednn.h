// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "src/kernels/matmul/product.h"

namespace weft {

/// Computes the product by oneDNN, for f32, bf16 and f16 operands; m, n, k > 0. bf16 products run
/// in f32 if the processor has no bf16 instructions, f16 products always. The primitives are cached
/// per thread.
void multiply_onednn(const Product& product);

/// Whether the processor has instructions for products of bf16.
bool has_bf16_instructions();

/// Returns oneDNN's version and the instruction set it uses here: its results depend on both.
std::string onednn_in_words();

}  // namespace weft

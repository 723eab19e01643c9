// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "src/matmul/product.h"

namespace weft {

/// The product by oneDNN, of f32, bf16 and f16 operands: m, n, k > 0. bf16 products run in f32
/// where the processor has no bf16 instructions, f16 products always. The primitives are kept in a
/// table of the calling thread.
void multiply_onednn(const Product& product);

/// Whether products of bf16 run on instructions for them.
bool has_bf16_instructions();

/// Its version and the instruction set that it takes here: its results depend on both.
std::string onednn_in_words();

}  // namespace weft

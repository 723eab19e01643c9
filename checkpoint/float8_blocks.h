// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "weft/safetensors.h"

namespace weft {

// Matrices of OCP's E4M3 in blocks of 128 x 128 elements, each with a factor in the f32 matrix
// "<name>_scale_inv", as Hugging Face's "fp8" quantization stores them.

/// Whether the files hold the tensor so.
bool is_in_float8_blocks(const TensorFiles& files, const std::string& name);
std::string name_of_scales(const std::string& name);
/// std::invalid_argument, which begins with `what`, when the factors do not fit the matrix.
void check_float8_blocks(const std::string& what, const TensorFiles& files,
                         const std::string& name);
/// Reads the elements of `box`, times their factors, to `into`, dense and row-major.
void read_float8_blocks(const TensorFiles& files, const std::string& name, const Box& box,
                        float* into);

}  // namespace weft

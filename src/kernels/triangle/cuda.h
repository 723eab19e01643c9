// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/block.h"

namespace weft::cuda {

/// GPU version of copy_triangle of src/kernels/triangle.h.
void copy_triangle(const Block& out, const Block& in, bool upper, int64_t diagonal, int64_t row,
                   int64_t column);

}  // namespace weft::cuda

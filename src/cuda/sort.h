// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/block.h"

namespace weft::cuda {

/// sort_rows and, where `values` is null, argsort_rows of src/kernels/sort.h, where the blocks lie
/// on a GPU.
void sort_rows(const Block* values, const Block& indices, const Block& in, bool descending,
               int64_t offset);

}  // namespace weft::cuda

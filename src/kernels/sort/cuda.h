// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/block.h"

namespace weft::cuda {

/// GPU version of sort_rows of src/kernels/sort.h and, with null `values`, of argsort_rows.
void sort_rows(const Block* values, const Block& indices, const Block& in, bool descending,
               int64_t offset);

}  // namespace weft::cuda

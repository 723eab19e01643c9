// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/block.h"

namespace weft::cuda {

// GPU versions of the functions of src/kernels/reduce.h that find indices.

void arg_reduce(const Block& out, const Block& in, int dim, bool greatest, int64_t offset);

void index_of(const Block& out, const Block& in, const Block& value, int dim, int64_t offset);

}  // namespace weft::cuda

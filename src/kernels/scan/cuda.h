// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/block.h"

namespace weft::cuda {

// GPU versions of the functions of src/kernels/scan.h.

void cumulative_sum(const Block& out, const Block& in, int dim, bool reverse, const Block* start);

void cumulative_product(const Block& out, const Block& in, int dim);

void cumulative_product_gradient(const Block& out, const Block& dy, const Block& x, int dim);

void product_gradient(const Block& out, const Block& dy, const Block& x, int dim);

}  // namespace weft::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "weft/block.h"

namespace weft::cuda {

// GPU versions of the functions of src/kernels/take.h.

/// Waits for the device.
std::optional<int64_t> find_index_outside(const Block& indices, int64_t size);

void take_along(const Block& out, const Block& in, const Block& indices, int dim);

void add_along(const Block& out, const Block& in, const Block& indices, int dim);

}  // namespace weft::cuda

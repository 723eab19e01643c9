// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "src/kernels/embedding/embedding.h"

namespace weft::cuda {

// GPU versions of the functions of src/kernels/embedding.h.

void gather_rows(const Block& out, const Block& table, const Block& ids, int64_t offset);
void scatter_add_rows(const Block& table, const Block& rows, const Block& ids, int64_t offset,
                      bool accumulate, std::optional<int64_t> skipped);
/// Waits for the device.
std::optional<int64_t> find_outside(const Block& ids, int64_t low, int64_t high,
                                    std::optional<int64_t> allowed);

}  // namespace weft::cuda

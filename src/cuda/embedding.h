// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "src/kernels/embedding.h"

namespace weft::cuda {

// Functions of src/kernels/embedding.h where the blocks lie on a GPU.

void gather_rows(const Block& out, const Block& table, const Block& ids, int64_t offset);
void scatter_add_rows(const Block& table, const Block& rows, const Block& ids, int64_t offset,
                      bool accumulate, std::optional<int64_t> skipped);
/// Waits for the answer.
std::optional<int64_t> find_outside(const Block& ids, int64_t low, int64_t high,
                                    std::optional<int64_t> allowed);

}  // namespace weft::cuda

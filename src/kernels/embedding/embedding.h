// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "weft/block.h"

namespace weft {

/// out[..., :] = table[ids[...] - offset, :]; zeros where the table does not have that row. ids are
/// i32 or i64.
void gather_rows(const Block& out, const Block& table, const Block& ids, int64_t offset = 0);

/// table[ids[...] - offset, :] += rows[..., :], in the order of the ids. Skips ids whose rows the
/// table does not have, and the id `skipped`. The table starts from zeros unless `accumulate`. Bits
/// do not depend on the number of threads.
void scatter_add_rows(const Block& table, const Block& rows, const Block& ids, int64_t offset = 0,
                      bool accumulate = false, std::optional<int64_t> skipped = {});

/// Returns the first id that is neither in [low, high) nor `allowed`; nothing when there is none.
std::optional<int64_t> find_outside(const Block& ids, int64_t low, int64_t high,
                                    std::optional<int64_t> allowed = {});

}  // namespace weft

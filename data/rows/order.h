// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace weft::rows {

/// A number of which every bit depends on every bit of `x`.
uint64_t scrambled(uint64_t x);

/// Maps `index` in [0, count) by the permutation that `key` selects.
int64_t permuted(int64_t index, int64_t count, uint64_t key);

}  // namespace weft::rows

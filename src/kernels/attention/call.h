// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/base/numeric.h"
#include "src/kernels/attention/attention.h"
#include "src/kernels/kernel.h"

namespace weft {

/// Keys per tile of scores, and the multiple to which their number is rounded up, so that all
/// sequence lengths share a few product shapes.
inline constexpr int64_t kTileKeys = 512;
inline constexpr int64_t kKeyStep = 64;

constexpr int64_t whole_steps(int64_t keys) { return (keys + kKeyStep - 1) / kKeyStep * kKeyStep; }

/// Consecutive queries of all heads that share a key head: row g * count + i is query first + i of
/// the group's head g.
struct QueryBlock {
  int64_t first, count, rows;
  /// Keys that the last query sees, the maximum over the block.
  int64_t seen;
};

/// The sizes and options of one call.
struct AttentionSizes {
  int64_t batch, heads, kv_heads, group, queries, keys, width;
  double scale;
  bool causal;
  int64_t offset;
  /// Queries in a block.
  int64_t block_queries;

  int64_t blocks() const { return (queries + block_queries - 1) / block_queries; }
  int64_t block_rows() const { return group * block_queries; }
  /// Returns how many keys a query sees.
  WEFT_FN int64_t seen(int64_t query) const {
    return causal ? std::clamp<int64_t>(offset + query + 1, 0, keys) : keys;
  }
  /// Returns the first query that sees a key.
  WEFT_FN int64_t first_query(int64_t key) const {
    return causal && key > offset ? key - offset : 0;
  }
  /// The number of keys that any query sees, rounded up to whole steps.
  int64_t packed_keys() const { return queries == 0 ? 0 : whole_steps(seen(queries - 1)); }
  QueryBlock block(int64_t index) const {
    const int64_t first = index * block_queries;
    const int64_t count = std::min(block_queries, queries - first);
    return {first, count, group * count, seen(first + count - 1)};
  }
  /// The first query of `block` that sees key `key`, relative to the block; count if there is none.
  int64_t first_query(const QueryBlock& block, int64_t key) const {
    if (key >= keys) return block.count;
    return causal ? std::clamp<int64_t>(key - offset - block.first, 0, block.count) : 0;
  }
};

/// Operands and results of the backward.
struct AttentionGradients {
  const MemoryBlock &q, &k, &v, &out, &lse, &dout, &dq, &dk, &dv;
};

inline bool is_on_gpu(const AttentionGradients& x) { return is_on_gpu(x.q); }

// The operands have been checked.

WEFT_KERNEL(void, attend,
            (const AttentionSizes& sizes, const MemoryBlock& q, const MemoryBlock& k,
             const MemoryBlock& v, const MemoryBlock& out, const MemoryBlock& lse),
            (sizes, q, k, v, out, lse))
WEFT_KERNEL(void, attend_backward, (const AttentionSizes& sizes, const AttentionGradients& x),
            (sizes, x))

}  // namespace weft

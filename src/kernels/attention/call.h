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

/// The sizes of one call, and the options that say which keys are seen.
struct AttentionSizes {
  int64_t batch, heads, kv_heads, group, queries, keys, width;
  double scale;
  bool causal;
  int64_t offset, window;
  /// This part of the whole operands.
  int64_t first_batch, first_head, all_heads, all_queries;
  /// Queries in a block.
  int64_t block_queries;

  int64_t blocks() const { return (queries + block_queries - 1) / block_queries; }
  int64_t block_rows() const { return group * block_queries; }
  /// Returns the first key that a query sees, and the end of the last one.
  WEFT_FN int64_t first_key(int64_t query) const {
    return window > 0 ? std::clamp<int64_t>(offset + query - window + 1, 0, keys) : 0;
  }
  WEFT_FN int64_t seen(int64_t query) const {
    if (causal) return std::clamp<int64_t>(offset + query + 1, 0, keys);
    return window > 0 ? std::clamp<int64_t>(offset + query + window, 0, keys) : keys;
  }
  /// Returns the first query that sees a key, and the end of the last one.
  WEFT_FN int64_t first_query(int64_t key) const {
    const int64_t first = causal ? key - offset : window > 0 ? key - offset - window + 1 : 0;
    return first > 0 ? first : 0;
  }
  WEFT_FN int64_t end_query(int64_t key) const {
    return window > 0 ? std::clamp<int64_t>(key - offset + window, 0, queries) : queries;
  }
  /// The number of keys that any query sees, rounded up to whole steps.
  int64_t packed_keys() const { return queries == 0 ? 0 : whole_steps(seen(queries - 1)); }
};

struct QueryRange {
  int64_t begin, end;
};

/// Consecutive queries of all heads that share a key head: row g * count + i is query first + i of
/// the group's head g.
struct QueryBlock {
  const AttentionSizes& sizes;
  int64_t batch, kv_head;
  int64_t first, count, rows;
  /// The first key that any query sees, rounded down to a whole step, and the end of the last one.
  int64_t begin, seen;

  QueryBlock(const AttentionSizes& of, int64_t batch_element, int64_t key_head, int64_t index)
      : sizes(of),
        batch(batch_element),
        kv_head(key_head),
        first(index * of.block_queries),
        count(std::min(of.block_queries, of.queries - first)),
        rows(of.group * count),
        begin(of.first_key(first) / kKeyStep * kKeyStep),
        seen(of.seen(first + count - 1)) {}
  /// Returns the head and the query of a row.
  int64_t head(int64_t row) const { return kv_head * sizes.group + row / count; }
  int64_t query(int64_t row) const { return first + row % count; }
  /// Returns the queries that see key `key`, relative to the block.
  QueryRange queries_of(int64_t key) const {
    if (key >= sizes.keys) return {count, count};
    const int64_t from = std::clamp<int64_t>(sizes.first_query(key) - first, 0, count);
    if (sizes.window == 0) return {from, count};
    return {from, std::clamp<int64_t>(sizes.end_query(key) - first, from, count)};
  }
  /// Returns whether all queries see all of the `keys` keys from `key` on.
  bool all_see(int64_t key, int64_t keys) const {
    return queries_of(key + keys - 1).begin == 0 && queries_of(key).end == count;
  }
};

inline bool is_on_gpu(const AttentionOperands& x) { return is_on_gpu(x.q); }
inline bool is_on_gpu(const AttentionGradients& x) { return is_on_gpu(x.q); }

// The operands have been checked.

WEFT_KERNEL(void, attend, (const AttentionSizes& sizes, const AttentionOperands& x), (sizes, x))
WEFT_KERNEL(void, attend_backward, (const AttentionSizes& sizes, const AttentionGradients& x),
            (sizes, x))

namespace cuda {

// Attention by cuDNN's fused kernels, on the current stream, in builds with cuDNN. Returns false,
// with nothing queued, when cuDNN does not support the call.

bool attend_by_cudnn(const AttentionSizes& sizes, const AttentionOperands& x);

/// The bits of the gradients are equal in every run.
bool attend_backward_by_cudnn(const AttentionSizes& sizes, const AttentionGradients& x);

}  // namespace cuda

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/attention/rule.h"
#include "src/kernels/attention/tiles.h"

namespace weft {

/// The scores of `count` keys from `first` on for a block of queries; keys beyond the last are left
/// out.
inline ScoreRange range_of(const QueryBlock& block, int64_t first, int64_t count) {
  const AttentionSizes& sizes = block.sizes;
  return {.batch = sizes.first_batch + block.batch,
          .head = sizes.first_head + block.head(0),
          .heads = sizes.group,
          .query = sizes.offset + block.first,
          .queries = block.count,
          .key = first,
          .keys = std::clamp<int64_t>(sizes.keys - first, 0, count)};
}

/// Calls f(first, count) for the tiles of keys that queries of the block see. Steps of keys at both
/// ends of a tile are left out where a mask hides them from all queries.
template <class T, class F>
void for_seen_tiles(const ScoreRule<T>* rule, const QueryBlock& block, const F& f) {
  for_key_tiles(block.begin, block.seen, [&](int64_t first, int64_t count) {
    const auto hidden = [&](int64_t step) {
      return rule && rule->hides_all(range_of(block, step, kKeyStep));
    };
    int64_t end = first + count;
    while (first < end && hidden(first)) first += kKeyStep;
    while (first < end && hidden(end - kKeyStep)) end -= kKeyStep;
    if (first < end) f(first, end - first);
  });
}

/// Applies the scale and all changes to a tile of `count` scores, [keys, rows]; `slopes`, unless
/// null, is multiplied by their derivatives.
template <class T>
void modify_tile(const ScoreRule<T>& rule, const ScoreRange& at, int64_t count, T scale, T* scores,
                 T* slopes) {
  for (int64_t i = 0; scale != T(1) && i < count; ++i) scores[i] *= scale;
  const ScoreTile<T> tile{at, scores, slopes};
  rule.each([&](const auto& mod) { modify_scores(mod, tile); });
}

/// Multiplies a tile of `count` keys by the factors of dropout.
template <class X>
void drop_tile(const KeptProbabilities& kept, const ScoreRange& at, const QueryBlock& block,
               int64_t count, X* tile) {
  for (int64_t k = 0; k < count; k += 4) {
    for (int64_t row = 0; row < block.rows; ++row) {
      float factors[4];
      kept.four(at.batch, at.head + row / block.count, at.query + row % block.count, at.key + k,
                factors);
      for (int64_t j = 0; j < 4; ++j) {
        X& x = tile[(k + j) * block.rows + row];
        x = X(static_cast<X>(x) * static_cast<X>(factors[j]));
      }
    }
  }
}

/// Adds the gradients of a tile of scores to the gradient of the mask.
template <class T>
void add_to_mask(const MemoryBlock& dmask, const ScoreRange& at, const QueryBlock& block,
                 const T* ds) {
  const ScoreSide<T> side(dmask, "bhqk", block.sizes);
  for (int64_t k = 0; k < at.keys; ++k) {
    for (int64_t row = 0; row < block.rows; ++row) {
      dmask.as<T>()[side.index(at.batch, at.head + row / block.count, at.query + row % block.count,
                               at.key + k)] += ds[k * block.rows + row];
    }
  }
}

}  // namespace weft

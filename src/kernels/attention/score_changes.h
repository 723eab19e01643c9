// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <limits>
#include <utility>

#include "src/kernels/attention/call.h"
#include "src/kernels/math/math.h"
#include "src/kernels/math/philox.h"
#include "weft/extend/score_mod.h"

namespace weft {

inline namespace WEFT_COMPILER {

// The changes of scores that the options ask for, as mods (weft/extend/score_mod.h). Batch elements
// and heads are counted in the whole tensors, queries by position.

/// Elements of an operand by batch element, head, query and key; strides are 0 where it broadcasts.
template <class T> struct ScoreSide {
  const T* data = nullptr;
  int64_t batch = 0, head = 0, query = 0, key = 0, start = 0;

  ScoreSide() = default;
  /// The block's dims are those that `strides` lists: "b", "h", "q", "k".
  ScoreSide(const MemoryBlock& block, const char* dims, const AttentionSizes& sizes)
      : data(block.as<T>()) {
    for (int d = 0; data && d < block.shape.ndim(); ++d) {
      const int64_t stride = block.shape[d] == 1 ? 0 : block.strides[d];
      if (dims[d] == 'b') batch = stride;
      if (dims[d] == 'h') head = stride;
      if (dims[d] == 'q') query = stride;
      if (dims[d] == 'k') key = stride;
    }
    start = -(sizes.first_batch * batch + sizes.first_head * head + sizes.offset * query);
  }
  explicit operator bool() const { return data != nullptr; }
  WEFT_FN int64_t index(int64_t b, int64_t h, int64_t q, int64_t k) const {
    return start + b * batch + h * head + q * query + k * key;
  }
  WEFT_FN T at(int64_t b, int64_t h, int64_t q, int64_t k) const { return data[index(b, h, q, k)]; }
};

struct Softcap {
  double cap = 0;

  explicit operator bool() const { return cap > 0; }
  template <class T> WEFT_FN T score(T score, int64_t, int64_t, int64_t, int64_t) const {
    return static_cast<T>(cap) * tanh(score / static_cast<T>(cap));
  }
  template <class T> WEFT_FN T slope(T score, int64_t, int64_t, int64_t, int64_t) const {
    const T y = tanh(score / static_cast<T>(cap));
    return 1 - y * y;
  }
};

template <class T> struct Alibi {
  ScoreSide<T> slopes;

  explicit operator bool() const { return bool(slopes); }
  WEFT_FN T score(T score, int64_t b, int64_t h, int64_t q, int64_t k) const {
    return score - slopes.at(b, h, q, k) * static_cast<T>(q < k ? k - q : q - k);
  }
  WEFT_FN T slope(T, int64_t, int64_t, int64_t, int64_t) const { return 1; }
};

template <class T> struct AddedMask {
  ScoreSide<T> added;

  explicit operator bool() const { return bool(added); }
  WEFT_FN T score(T score, int64_t b, int64_t h, int64_t q, int64_t k) const {
    return score + added.at(b, h, q, k);
  }
  WEFT_FN T slope(T, int64_t, int64_t, int64_t, int64_t) const { return 1; }
};

/// True when all that is added is -inf.
template <class T> bool hides(const AddedMask<T>& mask, const ScoreRange& at) {
  for (int64_t h = at.head; h < at.head + at.heads; ++h) {
    for (int64_t q = at.query; q < at.query + at.queries; ++q) {
      for (int64_t k = at.key; k < at.key + at.keys; ++k) {
        if (mask.added.at(at.batch, h, q, k) != -std::numeric_limits<T>::infinity()) return false;
      }
    }
  }
  return true;
}

struct BoolMask {
  ScoreSide<bool> attends;

  explicit operator bool() const { return bool(attends); }
  WEFT_FN bool mask(int64_t b, int64_t h, int64_t q, int64_t k) const {
    return attends.at(b, h, q, k);
  }
};

/// Queries attend to keys of their own document.
struct SameSegment {
  ScoreSide<int64_t> ids;

  explicit operator bool() const { return bool(ids); }
  WEFT_FN bool mask(int64_t b, int64_t h, int64_t q, int64_t k) const {
    return ids.at(b, h, 0, q) == ids.at(b, h, 0, k);
  }
};

/// True when the ids of queries and keys are in ranges that do not meet.
inline bool hides(const SameSegment& segments, const ScoreRange& at) {
  const auto range = [&](int64_t first, int64_t count) {
    std::pair<int64_t, int64_t> ids{INT64_MAX, INT64_MIN};
    for (int64_t i = first; i < first + count; ++i) {
      const int64_t id = segments.ids.at(at.batch, 0, 0, i);
      ids = {std::min(ids.first, id), std::max(ids.second, id)};
    }
    return ids;
  };
  const auto queries = range(at.query, at.queries), keys = range(at.key, at.keys);
  return queries.second < keys.first || keys.second < queries.first;
}

/// A custom mod.
struct CustomMod {
  const ScoreMod* functions = nullptr;
  const void* mod = nullptr;

  explicit operator bool() const { return functions != nullptr; }
};

template <class T> void modify_scores(const CustomMod& custom, const ScoreTile<T>& tile) {
  custom.functions->modify(custom.mod, tile);
}
inline bool hides(const CustomMod& custom, const ScoreRange& at) {
  return custom.functions->hides(custom.mod, at);
}

/// The probabilities that dropout keeps. The row of (b, h, i) has keys_of_row numbers, a multiple
/// of four: four keys share one call of Philox.
struct KeptProbabilities {
  double p = 0;
  WordStream words{0, 0};
  Bernoulli kept{1, 1};
  int64_t heads = 0, queries = 0, keys_of_row = 0, shift = 0;

  KeptProbabilities() = default;
  KeptProbabilities(const AttentionArguments& x, const AttentionSizes& sizes)
      : p(x.dropout),
        words(x.random.seed, x.random.stream),
        kept(kept_by_dropout(x.dropout)),
        heads(sizes.all_heads),
        queries(sizes.all_queries),
        keys_of_row((sizes.keys + 3) / 4 * 4),
        shift(sizes.keys - sizes.all_queries) {}
  explicit operator bool() const { return p > 0; }

  WEFT_FN float factor(int64_t b, int64_t h, int64_t q, int64_t k) const {
    float factors[4];
    four(b, h, q, k / 4 * 4, factors);
    return factors[k % 4];
  }
  /// Gives the factors of keys k .. k + 3, where k is a multiple of four.
  WEFT_FN void four(int64_t b, int64_t h, int64_t q, int64_t k, float* factors) const {
    const int64_t row = (b * heads + h) * queries + q - shift;
    uint32_t word[4];
    words(static_cast<uint64_t>((row * keys_of_row + k) / 4), word[0], word[1], word[2], word[3]);
    for (int j = 0; j < 4; ++j) factors[j] = kept.at(word[j]);
  }
};

}  // namespace WEFT_COMPILER
}  // namespace weft

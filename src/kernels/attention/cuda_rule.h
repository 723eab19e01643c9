// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/attention/cuda_tiles.h"
#include "src/kernels/attention/rule.h"
#include "src/kernels/math/reducers.h"

namespace weft::cuda {

inline namespace WEFT_COMPILER {

/// No changes of scores: the kernels' plain form.
template <class C> struct PlainRule {
  template <class ThreadBlock>
  WEFT_DEVICE bool hides(const ThreadBlock&, const AttentionSizes&, const Strip&, int64_t,
                         int) const {
    return false;
  }
  WEFT_DEVICE static bool hides(C) { return false; }
  WEFT_DEVICE C changed(const AttentionSizes&, const Strip&, int, int64_t, C score, C&) const {
    return score;
  }
  template <class Tiles>
  WEFT_DEVICE void change(const AttentionSizes&, int, const Strip&, int64_t,
                          typename Tiles::Scores&) const {}
  WEFT_DEVICE C kept(const AttentionSizes&, const Strip&, int, int64_t, C value) const {
    return value;
  }
  WEFT_DEVICE C add_sink(const AttentionSizes&, const Strip&, C&, C&) const { return C(1); }
};

/// The changes of scores as the kernels apply them: rows are queries of a strip.
template <class C> struct ChangingRule {
  ScoreRule<C> rule;

  /// True when masks hide all keys of a tile from all queries. All threads of the block call it.
  template <class ThreadBlock>
  WEFT_DEVICE bool hides(const ThreadBlock& block, const AttentionSizes& call, const Strip& at,
                         int64_t first, int tile) const {
    if (!rule.masks()) return false;
    int any = 0;
    for (int i = block.thread(); i < tile * tile && any == 0; i += block.threads()) {
      const int row = i / tile;
      const int64_t key = first + i % tile;
      if (row < at.count && key < call.keys) {
        any = rule.attends(call.first_batch + at.batch, call.first_head + at.head,
                           call.offset + at.first + row, key);
      }
    }
    return block.template reduce<GreatestOf>(any) == 0;
  }
  WEFT_DEVICE static bool hides(C score) { return score == -std::numeric_limits<C>::infinity(); }
  WEFT_DEVICE C changed(const AttentionSizes& call, const Strip& at, int row, int64_t key, C score,
                        C& slope) const {
    return rule.changed(score, slope, call.first_batch + at.batch, call.first_head + at.head,
                        call.offset + at.first + row, key);
  }
  /// Changes an owner's scores of the keys from `first` on.
  template <class Tiles>
  WEFT_DEVICE void change(const AttentionSizes& call, int owner, const Strip& at, int64_t first,
                          typename Tiles::Scores& scores) const {
    for (int i = 0; i < Tiles::kM; ++i) {
      const int row = owner / kSide + i * kSide;
      WEFT_UNROLL
      for (int j = 0; j < Tiles::kM; ++j) {
        const int64_t key = first + owner % kSide + j * kSide;
        if (row >= at.count || key >= call.keys) continue;
        C slope;
        scores.at[i][j] = changed(call, at, row, key, scores.at[i][j], slope);
      }
    }
  }
  /// `value` times dropout's factor.
  WEFT_DEVICE C kept(const AttentionSizes& call, const Strip& at, int row, int64_t key,
                     C value) const {
    if (rule.kept.p == 0 || row >= at.count || key >= call.keys) return value;
    return value *
           static_cast<C>(rule.kept.factor(call.first_batch + at.batch, call.first_head + at.head,
                                           call.offset + at.first + row, key));
  }
  /// Adds the head's sink to a row's maximum and total; returns the factor of its sums.
  WEFT_DEVICE C add_sink(const AttentionSizes& call, const Strip& at, C& max, C& total) const {
    return rule.sinks.data ? rule.add_sink(call.first_head + at.head, max, total) : C(1);
  }
};

/// The gradient of an added mask. Elements that a mask broadcasts to are added atomically.
template <class C> struct MaskGradient {
  C* data;
  ScoreSide<C> side;

  MaskGradient(const MemoryBlock& dmask, const AttentionSizes& sizes)
      : data(dmask.as<C>()), side(dmask, "bhqk", sizes) {}
  WEFT_DEVICE void add(const AttentionSizes& call, const Strip& at, int row, int64_t key,
                       C value) const {
    if (!data) return;
    add_atomically(data + side.index(call.first_batch + at.batch, call.first_head + at.head,
                                     call.offset + at.first + row, key),
                   value);
  }
};

/// Calls f(Type<C>, rule) for the type of scores.
template <class F>
void with_rule(const AttentionSizes& sizes, const AttentionArguments& options, DType dtype,
               const F& f) {
#ifdef __CUDACC__
  if (options.mod) {
    fail(
        "attention_with: device is cuda, expected cpu; masks and options of attention work on "
        "both");
  }
#endif
  const auto in = [&]<class C>(Type<C> type) {
    if (options.has_rule()) return f(type, ChangingRule<C>{ScoreRule<C>(options, sizes)});
    f(type, PlainRule<C>{});
  };
  dtype == DType::f64 ? in(Type<double>{}) : in(Type<float>{});
}

}  // namespace WEFT_COMPILER
}  // namespace weft::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/attention/score_changes.h"

namespace weft {

inline namespace WEFT_COMPILER {

/// All changes of one call. T is the type of scores.
template <class T> struct ScoreRule {
  Softcap softcap;
  CustomMod custom;
  Alibi<T> alibi;
  AddedMask<T> added;
  BoolMask mask;
  SameSegment segments;
  KeptProbabilities kept;
  ScoreSide<T> sinks;

  ScoreRule(const AttentionArguments& x, const AttentionSizes& sizes)
      : softcap{x.softcap},
        custom{x.mod, x.mod_bytes},
        alibi{{x.slopes, "h", sizes}},
        segments{{x.segments, "bk", sizes}},
        kept(x, sizes),
        sinks(x.sinks, "h", sizes) {
    if (!x.mask.data) return;
    if (x.mask.dtype == DType::boolean) {
      mask.attends = ScoreSide<bool>(x.mask, "bhqk", sizes);
    } else {
      added.added = ScoreSide<T>(x.mask, "bhqk", sizes);
    }
  }

  /// Calls f with each mod, in order.
  template <class F> void each(const F& f) const {
    if (softcap) f(softcap);
    if (custom) f(custom);
    if (alibi) f(alibi);
    if (added) f(added);
    if (mask) f(mask);
    if (segments) f(segments);
  }
  /// One score after all changes; `slope` gets the derivative. A custom mod's functions are the
  /// host's: the emulated device calls them, a GPU cannot.
  WEFT_FN T changed(T score, T& slope, int64_t b, int64_t h, int64_t q, int64_t k) const {
    slope = T(1);
    if (softcap.cap > 0) {
      slope = softcap.slope(score, b, h, q, k);
      score = softcap.score(score, b, h, q, k);
    }
#ifndef __CUDACC__
    if (custom) modify_scores(custom, ScoreTile<T>{{b, h, 1, q, 1, k, 1}, &score, &slope});
#endif
    if (alibi.slopes.data) score = alibi.score(score, b, h, q, k);
    if (added.added.data) score = added.score(score, b, h, q, k);
    return attends(b, h, q, k) ? score : -std::numeric_limits<T>::infinity();
  }
  WEFT_FN bool masks() const { return mask.attends.data || segments.ids.data; }
  WEFT_FN bool attends(int64_t b, int64_t h, int64_t q, int64_t k) const {
    return (!mask.attends.data || mask.mask(b, h, q, k)) &&
           (!segments.ids.data || segments.mask(b, h, q, k));
  }
  /// Adds a head's sink to a row's maximum and total; returns the factor of its sums.
  WEFT_FN T add_sink(int64_t head, T& max, T& total) const {
    const T sink = sinks.at(0, head, 0, 0), most = sink > max ? sink : max,
            factor = exp(max - most);
    total = total * factor + exp(sink - most);
    max = most;
    return factor;
  }
  /// True when scores change other than by a sum.
  bool has_slopes() const { return softcap || custom; }
  bool hides_all(const ScoreRange& at) const {
    bool hidden = false;
    each([&](const auto& mod) { hidden = hidden || hides(mod, at); });
    return hidden;
  }
};

}  // namespace WEFT_COMPILER
}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/base/independent.h"
#include "src/kernels/math/math.h"

namespace weft {

// Loops over dense rows, and their element functions, whose members are statistics of the row.

/// exp(x - max).
template <class C> struct ExpAbove {
  C max;
  WEFT_FN C operator()(C x) const { return exp(x - max); }
};

template <class C> struct ProductOfTwo {
  WEFT_FN C operator()(C a, C b) const { return a * b; }
};

template <class C> struct Times {
  C factor;
  WEFT_FN C operator()(C x) const { return x * factor; }
};

/// x - max - log_sum; x - (max + log_sum) would round to max's precision.
template <class C> struct LogSoftmax {
  C max, log_sum;
  WEFT_FN C operator()(C x) const { return (x - max) - log_sum; }
};

/// factor * exp(x - max).
template <class C> struct ScaledExp {
  C max, factor;
  WEFT_FN C operator()(C x) const { return factor * exp(x - max); }
};

template <class C> struct SoftmaxGradient {
  C dot;
  WEFT_FN C operator()(C dy, C y) const { return y * (dy - dot); }
};

template <class C> struct LogSoftmaxGradient {
  C sum;
  WEFT_FN C operator()(C dy, C y) const { return dy - exp(y) * sum; }
};

/// (x - mean)^2.
template <class C> struct CenteredSquare {
  C mean;
  WEFT_FN C operator()(C x) const { return (x - mean) * (x - mean); }
};

/// dy * weight * (x - mean) * rstd.
template <class C> struct NormDot {
  C mean, rstd;
  WEFT_FN C operator()(C dy, C weight, C x) const { return dy * weight * ((x - mean) * rstd); }
};

/// (x - mean) * rstd * weight, + bias if there is one.
template <class C> struct Normalized {
  C mean, rstd;
  WEFT_FN C operator()(C x, C weight) const { return (x - mean) * rstd * weight; }
  WEFT_FN C operator()(C x, C weight, C bias) const { return (x - mean) * rstd * weight + bias; }
};

/// The gradient of a normalised row: rstd * (dy * weight - sum - xhat * dot), xhat = (x - mean) *
/// rstd; sum and dot are means over the row of dy * weight and dy * weight * xhat.
template <class C> struct NormGradient {
  C mean, rstd, sum, dot;
  WEFT_FN C operator()(C dy, C weight, C x) const {
    return rstd * (dy * weight - sum - (x - mean) * rstd * dot);
  }
};

/// Adds one row's contribution to the gradient of the weight.
template <class C> struct WeightGradient {
  C mean, rstd;
  WEFT_FN C operator()(C before, C dy, C x) const { return before + dy * ((x - mean) * rstd); }
};

template <class C> struct Sum {
  WEFT_FN C operator()(C a, C b) const { return a + b; }
};

inline namespace WEFT_COMPILER {

/// Accumulators of a sum: enough to hide the latency of additions.
template <class C> inline constexpr int kLanes = 128 / static_cast<int>(sizeof(C));

/// Combines 2 * kWidth accumulators into the first one, in pairs.
template <class R, int kWidth, class C> [[gnu::always_inline]] inline void fold_lanes(C* lanes) {
  for (int l = 0; l < kWidth; ++l) lanes[l] = R::combine(lanes[l], lanes[l + kWidth]);
  if constexpr (kWidth > 1) fold_lanes<R, kWidth / 2>(lanes);
}

/// Combines the reducer elements f(in[i]...), in fixed accumulators.
template <class R, class C, class F, class... In>
C reduce_row(int64_t n, const F& f, const In*... in) {
  constexpr int kN = kLanes<C> * R::kTimesLanes;
  C lanes[kN];
  for (int l = 0; l < kN; ++l) lanes[l] = R::template identity<C>();
  int64_t i = 0;
  for (; i + kN <= n; i += kN) {
    for (int l = 0; l < kN; ++l)
      lanes[l] = R::combine(lanes[l], R::element(f(static_cast<C>(in[i + l])...)));
  }
  for (int l = 0; i < n; ++i, ++l)
    lanes[l] = R::combine(lanes[l], R::element(f(static_cast<C>(in[i])...)));
  fold_lanes<R, kN / 2>(lanes);
  return lanes[0];
}

struct AsItIs {
  template <class T> WEFT_FN T operator()(T x) const { return x; }
};

/// out[i] = f(in[i]...), computed as C.
template <class C, class F, class Out, class... In>
void map_row(int64_t n, const F& f, Out* out, const In*... in) {
  WEFT_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Out>(f(static_cast<C>(in[i])...));
}

}  // namespace WEFT_COMPILER
}  // namespace weft

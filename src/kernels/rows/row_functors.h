// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/math/math.h"

namespace weft {

// Element functions of row kernels; their members are statistics of the row.

/// exp(x - max).
template <class C>
struct ExpAbove {
  C max;
  WEFT_FN C operator()(C x) const { return exp(x - max); }
};

template <class C>
struct ProductOfTwo {
  WEFT_FN C operator()(C a, C b) const { return a * b; }
};

template <class C>
struct ProductOfThree {
  WEFT_FN C operator()(C a, C b, C c) const { return a * b * c; }
};

template <class C>
struct Times {
  C factor;
  WEFT_FN C operator()(C x) const { return x * factor; }
};

/// x - max - log_sum; x - (max + log_sum) would round to max's precision.
template <class C>
struct LogSoftmax {
  C max, log_sum;
  WEFT_FN C operator()(C x) const { return (x - max) - log_sum; }
};

/// factor * exp(x - max).
template <class C>
struct ScaledExp {
  C max, factor;
  WEFT_FN C operator()(C x) const { return factor * exp(x - max); }
};

template <class C>
struct SoftmaxGradient {
  C dot;
  WEFT_FN C operator()(C dy, C y) const { return y * (dy - dot); }
};

template <class C>
struct LogSoftmaxGradient {
  C sum;
  WEFT_FN C operator()(C dy, C y) const { return dy - exp(y) * sum; }
};

/// (x - mean)^2.
template <class C>
struct CenteredSquare {
  C mean;
  WEFT_FN C operator()(C x) const { return (x - mean) * (x - mean); }
};

/// a * b * (x - mean) * rstd.
template <class C>
struct NormDot {
  C mean, rstd;
  WEFT_FN C operator()(C dy, C weight, C x) const { return dy * weight * ((x - mean) * rstd); }
};

/// (x - mean) * rstd * weight + bias.
template <class C>
struct Normalized {
  C mean, rstd;
  WEFT_FN C operator()(C x, C weight) const { return (x - mean) * rstd * weight; }
  WEFT_FN C operator()(C x, C weight, C bias) const { return (x - mean) * rstd * weight + bias; }
};

/// The gradient of a normalised row: rstd * (dy * weight - sum - xhat * dot), xhat = (x - mean) *
/// rstd; sum and dot are means over the row of dy * weight and dy * weight * xhat.
template <class C>
struct NormGradient {
  C mean, rstd, sum, dot;
  WEFT_FN C operator()(C dy, C weight, C x) const {
    return rstd * (dy * weight - sum - (x - mean) * rstd * dot);
  }
};

/// Adds one row's contribution to the gradient of the weight.
template <class C>
struct WeightGradient {
  C mean, rstd;
  WEFT_FN C operator()(C before, C dy, C x) const { return before + dy * ((x - mean) * rstd); }
};

template <class C>
struct Sum {
  WEFT_FN C operator()(C a, C b) const { return a + b; }
};

}  // namespace weft

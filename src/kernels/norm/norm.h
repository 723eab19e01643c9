// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/block.h"

namespace weft {

// Rows run along the last dim. weight and bias have its length; a weight without data counts as 1,
// a bias as 0. Rows are computed in f32, f64 for f64.

/// Describes rows of which this rank holds a part: the size of the whole row, and statistics of
/// whole rows, summed over ranks (x's shape without the last dim, or with size 1 there). Each
/// function documents which statistics it reads.
struct WholeRows {
  int64_t size;
  MemoryBlock sums[4];
};

/// y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + eps). With `cut`: sums[0] is the sum of
/// squares (Reduction::sum_squares).
void rms_norm(const MemoryBlock& y, const MemoryBlock& x, const MemoryBlock& weight, double eps,
              const WholeRows* cut = nullptr);

/// dot[r] = sum of dy * weight * x: sums[1] of rms_norm_backward.
void rms_norm_dot(const MemoryBlock& dot, const MemoryBlock& dy, const MemoryBlock& x,
                  const MemoryBlock& weight);

/// Computes dx, and dweight summed over rows (added to its contents when `accumulate`); either may
/// be null. With `cut`: sums[0] as in rms_norm, sums[1] from rms_norm_dot.
void rms_norm_backward(const MemoryBlock* dx, const MemoryBlock* dweight, const MemoryBlock& dy,
                       const MemoryBlock& x, const MemoryBlock& weight, double eps,
                       const WholeRows* cut = nullptr, bool accumulate = false);

/// out[r] = sum of (x - mean)^2, where mean = sums[0] / size: sums[1] of layer_norm.
void centered_squares(const MemoryBlock& out, const MemoryBlock& x, const WholeRows& cut);

/// y = (x - mean) * rstd * weight + bias, rstd = 1 / sqrt(variance + eps), with the variance
/// divided by size. With `cut`: sums[0] is the sum of x, sums[1] that of centered_squares.
void layer_norm(const MemoryBlock& y, const MemoryBlock& x, const MemoryBlock& weight,
                const MemoryBlock& bias, double eps, const WholeRows* cut = nullptr);

/// sum[r] = sum of dy * weight and dot[r] = sum of dy * weight * (x - mean) * rstd: sums[2] and
/// sums[3] of layer_norm_backward, from sums[0] and sums[1]. A result without data is skipped.
void layer_norm_sums(const MemoryBlock& sum, const MemoryBlock& dot, const MemoryBlock& dy,
                     const MemoryBlock& x, const MemoryBlock& weight, double eps,
                     const WholeRows& cut);

/// dx, and dweight and dbias summed over rows; each may be null. With `cut`: all four sums.
void layer_norm_backward(const MemoryBlock* dx, const MemoryBlock* dweight,
                         const MemoryBlock* dbias, const MemoryBlock& dy, const MemoryBlock& x,
                         const MemoryBlock& weight, double eps, const WholeRows* cut = nullptr,
                         bool accumulate = false);

}  // namespace weft

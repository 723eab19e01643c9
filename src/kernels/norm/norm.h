// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "weft/block.h"

namespace weft {

// Rows run along the last dim. weight and bias have its length; a weight without data counts as 1,
// a bias as 0. Rows are computed in f32, f64 for f64.

/// The kind of norm: layer_norm if `centered`, else rms_norm, which is a layer_norm with mean 0.
struct Norm {
  bool centered;
  double eps;
  /// Set for cut rows, of which this rank holds a part: the size of a whole row, and statistics of
  /// whole rows, summed over ranks (x's shape without the last dim, or with size 1 there). Each
  /// function documents which it reads. 0: the rank has whole rows.
  int64_t whole_size = 0;
  std::array<MemoryBlock, 4> sums = {};

  const char* name() const { return centered ? "layer_norm" : "rms_norm"; }
  bool is_cut() const { return whole_size > 0; }
};

/// y = (x - mean) * rstd * weight + bias, rstd = 1 / sqrt(variance + eps), with the variance
/// divided by size. Of cut rows, sums[0] is the sum of x, sums[1] that of centered_squares; for
/// rms_norm, sums[0] is the sum of squares (Reduction::sum_squares).
void normalize(const Norm& norm, const MemoryBlock& y, const MemoryBlock& x,
               const MemoryBlock& weight, const MemoryBlock& bias = {});

/// out[r] = sum of (x - mean)^2, where mean = sums[0] / whole_size: sums[1] of a cut layer_norm.
void centered_squares(const Norm& norm, const MemoryBlock& out, const MemoryBlock& x);

/// sum[r] = sum of dy * weight and dot[r] = sum of dy * weight * (x - mean) * rstd: sums[2] and
/// sums[3] of norm_backward, from sums[0] and sums[1]. For rms_norm, dot[r] = sum of dy * weight *
/// x: sums[1], from none. A result without data is skipped.
void norm_sums(const Norm& norm, const MemoryBlock& sum, const MemoryBlock& dot,
               const MemoryBlock& dy, const MemoryBlock& x, const MemoryBlock& weight);

/// Computes dx, and dweight and dbias (unless null) summed over rows, added to their contents when
/// `accumulate`. Cut rows need the sums of `normalize` and of norm_sums.
void norm_backward(const Norm& norm, const MemoryBlock& dx, const MemoryBlock& dweight,
                   const MemoryBlock* dbias, const MemoryBlock& dy, const MemoryBlock& x,
                   const MemoryBlock& weight, bool accumulate = false);

}  // namespace weft

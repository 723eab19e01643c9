// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/block.h"

namespace weft {

// Rows run along `dim`. When a rank holds only a part of each row, the caller passes statistics of
// the whole rows: results of `reduce` and of this header's functions for the parts, reduced over
// ranks. They have x's shape without `dim` (or size 1 there). Without them rows are whole. Rows are
// computed in f32, f64 for f64.

/// sum[r] = sum of exp(x - max[r]) over row r; an infinite max counts as 0.
void row_sum_exp(const MemoryBlock& sum, const MemoryBlock& x, int dim, const MemoryBlock& max);

/// y = exp(x - max) / sum, or its logarithm x - max - log(sum). For parts of rows `max` and `sum`
/// must be given.
void softmax(const MemoryBlock& y, const MemoryBlock& x, int dim, bool logarithm = false,
             const MemoryBlock* max = nullptr, const MemoryBlock* sum = nullptr);

/// out[r] = log of the sum of exp(x) over row r.
void logsumexp(const MemoryBlock& out, const MemoryBlock& x, int dim);
/// The same from the rows' statistics, all of one shape.
void logsumexp(const MemoryBlock& out, const MemoryBlock& max, const MemoryBlock& sum);

/// dot[r] = sum of a * b over row r.
void row_dot(const MemoryBlock& dot, const MemoryBlock& a, const MemoryBlock& b, int dim);

/// dx = y * (dy - given), given[r] the row_dot of y and dy; or, with y the logarithm of softmax, dx
/// = dy - exp(y) * given, given[r] the sum of dy.
void softmax_backward(const MemoryBlock& dx, const MemoryBlock& dy, const MemoryBlock& y, int dim,
                      bool logarithm = false, const MemoryBlock* given = nullptr);

/// dx = dy[r] * exp(x - lse[r]); lse is logsumexp's result, dy and lse without `dim` (or size 1).
void logsumexp_backward(const MemoryBlock& dx, const MemoryBlock& dy, const MemoryBlock& x,
                        const MemoryBlock& lse, int dim);

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/block.h"

namespace weft {

// Rows run along `dim`. When a rank holds only a part of each row, the caller passes statistics of
// the whole rows: results of `reduce` and of this header's functions for the parts, reduced over
// ranks. They have x's shape without `dim` (or size 1 there). Without them rows are whole. Rows are
// computed in f32, f64 for f64.

/// sum[r] = sum of exp(x - max[r]) over row r; an infinite max counts as 0.
void row_sum_exp(const Block& sum, const Block& x, int dim, const Block& max);

/// y = exp(x - max) / sum. For parts of rows `max` and `sum` must be given.
void softmax(const Block& y, const Block& x, int dim, const Block* max = nullptr,
             const Block* sum = nullptr);

/// y = x - max - log(sum).
void log_softmax(const Block& y, const Block& x, int dim, const Block* max = nullptr,
                 const Block* sum = nullptr);

/// out[r] = log of the sum of exp(x) over row r.
void logsumexp(const Block& out, const Block& x, int dim);
/// The same from the rows' statistics, all of one shape.
void logsumexp(const Block& out, const Block& max, const Block& sum);

/// dot[r] = sum of a * b over row r.
void row_dot(const Block& dot, const Block& a, const Block& b, int dim);

/// dx = y * (dy - dot), dot[r] the row_dot of y and dy.
void softmax_backward(const Block& dx, const Block& dy, const Block& y, int dim,
                      const Block* dot = nullptr);

/// dx = dy - exp(y) * sum, sum[r] the sum of dy; y is log_softmax's result.
void log_softmax_backward(const Block& dx, const Block& dy, const Block& y, int dim,
                          const Block* sum = nullptr);

/// dx = dy[r] * exp(x - lse[r]); lse is logsumexp's result, dy and lse without `dim` (or size 1).
void logsumexp_backward(const Block& dx, const Block& dy, const Block& x, const Block& lse,
                        int dim);

}  // namespace weft

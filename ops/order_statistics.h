// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/tensor.h"

namespace weft {

// Both return elements and their indices (i64) along `dim`, which is not negative and may be
// sharded.

/// The first `k` elements along `dim`, sorted.
Tensors sorted_first(const Tensor& a, int dim, int64_t k, bool descending);

/// The elements at `positions` (i64; shaped as `a` but along `dim`) of the sorted rows.
Tensors sorted_at(const Tensor& a, const Tensor& positions, int dim);

}  // namespace weft

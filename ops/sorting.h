// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/ops/selection.h"
#include "weft/ops/shapes.h"

namespace weft {

/// Returns zeros plus element i of each row along `dim` at `places[.., i, ..]` (i64, at least 0),
/// the gradient of take_along_dim with as many indices as elements. Ranks that hold parts of the
/// dim send each other the elements.
Tensor place_along_dim(const Tensor& a, const Tensor& places, int dim);

/// Returns elements and indices that have `dim` with size 1, or if not `keepdims` without the dim.
inline ValuesAndIndices without_dim(const ValuesAndIndices& found, int dim, bool keepdims) {
  if (keepdims) return found;
  return {squeeze(found.values, dim), squeeze(found.indices, dim)};
}

/// Results of the op `sort`: sorted elements and their indices.
Tensors sort_with_indices(const Tensor& a, int dim, bool descending);

// sorted_first and sorted_at return elements and their indices (i64) along `dim`, which is not
// negative and may be sharded.

/// The first `k` elements along `dim`, sorted.
Tensors sorted_first(const Tensor& a, int dim, int64_t k, bool descending);

/// The elements at `positions` (i64; shaped as `a` but along `dim`) of the sorted rows.
Tensors sorted_at(const Tensor& a, const Tensor& positions, int dim);

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "weft/export.h"
#include "weft/operand.h"
#include "weft/tensor.h"

namespace weft {

/// Indices (i32 or i64; negative ones count from the end) of one dim of a tensor.
struct DimIndex {
  int dim;
  Tensor index;
};

/// The elements of `a` at indices of some dims, which broadcast to one shape. The dims of that
/// shape take the place of the indexed dims where these are neighbours, and come first otherwise,
/// as in NumPy. Ranks send each other the elements that are named. std::invalid_argument names an
/// index out of range.
WEFT_API Tensor index(const Tensor& a, const std::vector<DimIndex>& indices);
/// The same with the places where `mask` (bool) holds, over the dims from `dim` on, as one dim.
WEFT_API std::vector<DimIndex> indices_of_mask(const Tensor& mask, int dim);
/// `a` with these elements replaced by `values`, which broadcast; or, to `accumulate`, added.
/// The last of equal indices stays, unless it accumulates.
WEFT_API Tensor index_put(const Tensor& a, const std::vector<DimIndex>& indices,
                          const Operand& values, bool accumulate = false);

}  // namespace weft

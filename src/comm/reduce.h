// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "weft/device.h"
#include "weft/dtype.h"
#include "weft/placement.h"

namespace weft {

/// Where a reduction's result goes. bf16 and f16 are reduced in f32 and rounded once, to `dtype`.
struct ReduceInto {
  void* data = nullptr;
  DType dtype = DType::f32;
  /// Add to what `data` holds.
  bool accumulate = false;
  /// Where it is, and the sources are.
  Device device = cpu;
};

/// into[i] = op of sources[0][i], sources[1][i], ... in that order, for `count` elements; the bits
/// do not depend on how a range is cut. `into` may be one of the sources itself if of equal dtype.
/// Integers wrap; the sum of bools is "any"; avg divides by the number of sources.
/// std::invalid_argument for what `check_reduction` refuses.
void reduce_n(ReduceOp op, DType dtype, std::span<const void* const> sources,
              const ReduceInto& into, int64_t count);

/// std::invalid_argument naming `what` for an average of integers and for a result of another dtype
/// unless both are floating.
void check_reduction(const char* what, ReduceOp op, DType dtype, DType into);

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "weft/device.h"
#include "weft/dtype.h"
#include "weft/placement.h"

namespace weft {

/// The destination of a reduction. bf16 and f16 are reduced in f32 and rounded once, to `dtype`.
struct ReduceInto {
  void* data = nullptr;
  DType dtype = DType::f32;
  /// Adds to the values in `data`.
  bool accumulate = false;
  /// The device of `data` and of the sources.
  Device device = cpu;
};

/// Sets into[i] to the reduction of sources[0][i], sources[1][i], ... in that order, for `count`
/// elements; the bits do not depend on how a range is divided. `into` may be one of the sources if
/// the dtypes are equal. Integers wrap; the sum of bools is "any"; avg divides by the number of
/// sources. Throws std::invalid_argument where `check_reduction` does.
void reduce_n(ReduceOp op, DType dtype, std::span<const void* const> sources,
              const ReduceInto& into, int64_t count);

/// Throws std::invalid_argument naming `what` for an average of integers, and for a result of
/// another dtype unless both are floating.
void check_reduction(const char* what, ReduceOp op, DType dtype, DType into);

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "src/base/numeric.h"
#include "weft/shape.h"

namespace weft::cuda {

inline constexpr int kMaxMapSides = 8;

/// A result or an operand of a map, as passed to its kernel.
struct MapSide {
  void* data;
  DType dtype;
  /// Strides in elements, one per dim of the map.
  int64_t strides[kMaxDims];
};

/// A loop over `elements` in row-major order of `sizes`: the argument of a map's kernel.
struct DeviceMap {
  int64_t elements;
  int ndim;
  int64_t sizes[kMaxDims];
  /// The results, then the operands.
  int results, count;
  MapSide sides[kMaxMapSides];
  /// True when all sides are dense, of `dtype` and aligned to 16 bytes.
  bool uniform;
  DType dtype;
};

}  // namespace weft::cuda

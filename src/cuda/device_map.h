// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "src/numeric.h"
#include "weft/shape.h"

namespace weft::cuda {

inline constexpr int kMaxMapSides = 8;

/// A result or an operand of a map, as its kernel gets it.
struct MapSide {
  void* data;
  DType dtype;
  /// Elements, for each dim of the map.
  int64_t strides[kMaxDims];
};

/// A loop over `elements` in row-major order of `sizes`: what a kernel of a map gets.
struct DeviceMap {
  int64_t elements;
  int ndim;
  int64_t sizes[kMaxDims];
  /// The results, then the operands.
  int results, count;
  MapSide sides[kMaxMapSides];
  /// All sides are dense and of this dtype, aligned to 16 bytes.
  bool uniform;
  DType dtype;
};

}  // namespace weft::cuda

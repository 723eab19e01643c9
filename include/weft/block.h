// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "weft/device.h"
#include "weft/dtype.h"
#include "weft/export.h"
#include "weft/shape.h"

namespace weft {

/// A slice of a tensor: `shape` elements per dim, starting at `offset`, in global coordinates.
struct Box {
  Dims offset;
  Shape shape;
  bool operator==(const Box&) const = default;
};

/// A view of one device's memory as an array, for kernels. Strides count elements.
struct MemoryBlock {
  void* data = nullptr;
  DType dtype = DType::f32;
  Device device;
  Shape shape;
  Strides strides;

  template <class T> T* as() const { return static_cast<T*>(data); }
  int64_t numel() const { return shape.product(); }
  /// True when the elements are contiguous in row-major order.
  WEFT_API bool is_dense() const;
  /// The part of this block that `box` selects, in the block's own coordinates.
  WEFT_API MemoryBlock part(const Box& box) const;
};

/// A dense block over `data`.
WEFT_API MemoryBlock dense_block(void* data, DType dtype, const Shape& shape, Device device = cpu);

}  // namespace weft

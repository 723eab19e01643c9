// SPDX-License-Identifier: Apache-2.0
#include "weft/block.h"

namespace weft {

bool MemoryBlock::is_dense() const {
  int64_t expected = 1;
  for (int i = shape.ndim() - 1; i >= 0; --i) {
    if (shape[i] == 0) return true;
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

MemoryBlock MemoryBlock::part(const Box& box) const {
  int64_t offset = 0;
  for (int i = 0; i < shape.ndim(); ++i) offset += box.offset[i] * strides[i];
  auto* start = static_cast<char*>(data);
  if (start) start += offset * static_cast<int64_t>(size_of(dtype));
  return {start, dtype, device, box.shape, strides};
}

MemoryBlock dense_block(void* data, DType dtype, const Shape& shape, Device device) {
  return {data, dtype, device, shape, dense_strides(shape)};
}

}  // namespace weft

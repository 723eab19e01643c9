// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/device/kernel/elements.h"
#include "weft/block.h"

namespace weft::cuda {

/// A block viewed as rows along one dim, numbered in row-major order of the other dims; passed to
/// kernels like Rows of src/kernels/rows.h. With `dim` = ndim each element is a row of size 1.
struct RowSide {
  void* data = nullptr;
  DType dtype = DType::f32;
  int64_t count = 1, size = 1;
  /// Stride between elements of a row.
  int64_t stride = 1;
  Nest<1> others;

  RowSide() = default;
  RowSide(const Block& block, int dim) : data(block.data), dtype(block.dtype) {
    for (int d = 0; d < block.shape.ndim(); ++d) {
      if (d == dim) {
        size = block.shape[d];
        stride = block.strides[d];
      } else {
        count *= block.shape[d];
        add(block.shape[d], block.strides[d]);
      }
    }
  }
  /// One value for each of `rows` rows: laid out like them, or one value for all.
  static RowSide values(const Block& block, int64_t rows) {
    RowSide values(block, -1);
    if (values.count == 1 && rows != 1) {
      values.add(rows, 0);
      values.count = rows;
    }
    return values;
  }

  /// Returns the offset of element `i` of a row.
  WEFT_FN int64_t at(int64_t row, int64_t i = 0) const {
    return others.offsets(row).of[0] + i * stride;
  }

 private:
  void add(int64_t dim_size, int64_t dim_stride) {
    if (dim_size == 1) return;
    const int last = others.ndim - 1;
    if (last >= 0 && others.strides[0][last] == dim_stride * dim_size) {
      others.sizes[last] *= dim_size;
      others.strides[0][last] = dim_stride;
      return;
    }
    others.sizes[others.ndim] = dim_size;
    others.strides[0][others.ndim++] = dim_stride;
  }
};

}  // namespace weft::cuda

// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/triangle/cuda.h"

#include "src/device/cuda/streams.h"
#include "src/device/kernel/launch.h"
#include "src/kernels/rows/row_side.h"

namespace weft::cuda {

namespace {

/// Rows of matrices with `rows` rows each. C holds every value of both dtypes.
template <class C>
struct CopyTriangle {
  RowSide to, from;
  int64_t rows;
  bool upper;
  /// Distance of element (0, 0) from the kept diagonal: negative when it is below it.
  int64_t above;

  WEFT_DEVICE void operator()(const Lane& lane) const {
    for (int64_t i = lane.index; i < to.count * to.size; i += lane.count) {
      const int64_t row = i / to.size, column = i - row * to.size;
      const int64_t distance = above + column - row % rows;
      const bool kept = upper ? distance >= 0 : distance <= 0;
      const C value = kept ? load_element<C>(from.data, from.dtype, from.at(row, column)) : C(0);
      store_element(to.data, to.dtype, to.at(row, column), value);
    }
  }
};

}  // namespace

void copy_triangle(const Block& out, const Block& in, bool upper, int64_t diagonal, int64_t row,
                   int64_t column) {
  const int last = out.shape.ndim() - 1;
  const RowSide to(out, last), from(in, last);
  visit_compute(in.dtype, [&](auto type) {
    using C = typename decltype(type)::type;
    launch(CopyTriangle<C>{to, from, out.shape[last - 1], upper, column - row - diagonal},
           to.count * to.size, current_stream(out.device));
  });
}

}  // namespace weft::cuda

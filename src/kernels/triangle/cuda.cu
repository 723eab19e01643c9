// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/triangle/triangle.h"

#include "src/device/cuda/streams.h"
#include "src/device/kernel/launch.h"
#include "src/kernels/rows/device_values.h"

namespace weft::cuda {

namespace {

/// Rows of matrices with `rows` rows each. C holds every value of both dtypes.
template <class C>
struct CopyTriangle {
  Rows to, from;
  int64_t rows;
  bool upper;
  /// Distance of element (0, 0) from the kept diagonal: negative when it is below it.
  int64_t above;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t i = thread.index; i < to.count() * to.size(); i += thread.count) {
      const int64_t row = i / to.size(), column = i - row * to.size();
      const int64_t distance = above + column - row % rows;
      const bool kept = upper ? distance >= 0 : distance <= 0;
      const C value = kept ? value_of<C>(from, row, column) : C(0);
      set_value(to, row, column, value);
    }
  }
};

}  // namespace

void copy_triangle(const MemoryBlock& out, const MemoryBlock& in, bool upper, int64_t diagonal,
                   int64_t row, int64_t column) {
  const int last = out.shape.ndim() - 1;
  const Rows to(out, last), from(in, last);
  check_rows("triangle", to, from);
  visit_compute(in.dtype, [&](auto type) {
    using C = typename decltype(type)::type;
    launch(CopyTriangle<C>{to, from, out.shape[last - 1], upper, column - row - diagonal},
           to.count() * to.size(), current_stream(out.device));
  });
}

}  // namespace weft::cuda

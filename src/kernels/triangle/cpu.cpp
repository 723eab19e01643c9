// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/triangle/triangle.h"

#include <algorithm>

#include "src/base/parallel.h"
#include "src/kernels/rows/rows.h"

namespace weft::host {

static Line part_of(Line line, int64_t first) {
  const int64_t bytes = first * line.stride * static_cast<int64_t>(size_of(line.dtype));
  line.data = static_cast<char*>(line.data) + bytes;
  return line;
}

void copy_triangle(const MemoryBlock& out, const MemoryBlock& in, bool upper, int64_t diagonal,
                   int64_t row, int64_t column) {
  const int last = out.shape.ndim() - 1;
  const Rows to(out, last), from(in, last);
  check_rows("triangle", to, from);
  const int64_t rows = out.shape[last - 1], n = to.size();
  const double zero = 0;
  const Line zeros{DType::f64, const_cast<double*>(&zero), 0};
  parallel_for(to.count(), grain_of(n), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t on_diagonal = row + r % rows + diagonal - column;
      const int64_t split = std::clamp<int64_t>(on_diagonal + (upper ? 0 : 1), 0, n);
      const Line whole = to.line(r), given = from.line(r);
      convert_line(upper ? whole : part_of(whole, split), zeros, upper ? split : n - split);
      const int64_t first = upper ? split : 0;
      convert_line(part_of(whole, first), part_of(given, first), upper ? n - split : split);
    }
  });
}

}  // namespace weft::host

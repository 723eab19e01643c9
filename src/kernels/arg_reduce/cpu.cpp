// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "src/base/parallel.h"
#include "src/kernels/math/reducers.h"
#include "src/kernels/reduce/reduce.h"
#include "src/kernels/rows/row_functors.h"
#include "src/kernels/rows/rows.h"
#include "weft/error.h"

namespace weft {

void check_indices(const char* what, const MemoryBlock& out) {
  if (out.dtype != DType::i32 && out.dtype != DType::i64) {
    fail(what, ": dtype of indices is ", out.dtype, ", expected i32 or i64");
  }
}

}  // namespace weft

namespace weft::host {

/// Returns the first index where x equals `value`, NaN equal to NaN; n when there is none. Works in
/// steps that vectorise.
template <class C> static int64_t first_equal(const C* x, int64_t n, C value) {
  constexpr int64_t kStep = 64;
  const bool nan = value != value;
  for (int64_t i = 0; i < n; i += kStep) {
    const int64_t end = std::min(n, i + kStep);
    int found = 0;
    for (int64_t j = i; j < end; ++j) found |= nan ? x[j] != x[j] : x[j] == value;
    if (!found) continue;
    while (nan ? x[i] == x[i] : x[i] != value) ++i;
    return i;
  }
  return n;
}

void arg_reduce(const MemoryBlock& out, const MemoryBlock& in, int dim, bool greatest,
                int64_t offset) {
  check_indices("arg_reduce", out);
  const Rows rows(in, dim), indices = Rows::values("arg_reduce", out, rows);
  const int64_t n = rows.size();
  visit_compute(in.dtype, [&](auto type) {
    using C = typename decltype(type)::type;
    parallel_for(rows.count(), grain_of(n), [&](int64_t begin, int64_t end) {
      RowReader<C> read(rows, end);
      for (int64_t r = begin; r < end; ++r) {
        const C* x = read(r);
        const C value = greatest ? reduce_row<GreatestOf, C>(n, AsItIs{}, x)
                                 : reduce_row<LeastOf, C>(n, AsItIs{}, x);
        const int64_t index = n == 0 ? -1 : first_equal(x, n, value) + offset;
        RowValues<int64_t>(indices).set(r, index);
      }
    });
  });
}

void index_of(const MemoryBlock& out, const MemoryBlock& in, const MemoryBlock& value, int dim,
              int64_t offset) {
  check_indices("index_of", out);
  const Rows rows(in, dim), indices = Rows::values("index_of", out, rows);
  const Rows values = Rows::values("index_of", value, rows);
  const int64_t n = rows.size();
  const int64_t none = out.dtype == DType::i32 ? std::numeric_limits<int32_t>::max()
                                               : std::numeric_limits<int64_t>::max();
  visit_compute(in.dtype, [&](auto type) {
    using C = typename decltype(type)::type;
    parallel_for(rows.count(), grain_of(n), [&](int64_t begin, int64_t end) {
      RowReader<C> read(rows, end);
      for (int64_t r = begin; r < end; ++r) {
        const int64_t index = first_equal(read(r), n, RowValues<C>(values)[r]);
        RowValues<int64_t>(indices).set(r, index == n ? none : index + offset);
      }
    });
  });
}

}  // namespace weft::host

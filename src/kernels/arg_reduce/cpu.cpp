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

/// out = find(x, row) for each row x along `dim`.
template <class Find>
static void store_found(const char* what, const MemoryBlock& out, const MemoryBlock& in, int dim,
                        const Find& find) {
  check_indices(what, out);
  const Rows rows(in, dim), indices = Rows::values(what, out, rows);
  visit_compute(in.dtype, [&]<class C>(Type<C>) {
    parallel_for(rows.count(), grain_of(rows.size()), [&](int64_t begin, int64_t end) {
      RowReader<C> read(rows, end);
      for (int64_t r = begin; r < end; ++r) RowValues<int64_t>(indices).set(r, find(read(r), r));
    });
  });
}

void arg_reduce(const MemoryBlock& out, const MemoryBlock& in, int dim, bool greatest,
                int64_t offset) {
  const int64_t n = Rows(in, dim).size();
  store_found("arg_reduce", out, in, dim, [&]<class C>(const C* x, int64_t) {
    const C value = greatest ? reduce_row<GreatestOf, C>(n, AsItIs{}, x)
                             : reduce_row<LeastOf, C>(n, AsItIs{}, x);
    return n == 0 ? -1 : first_equal(x, n, value) + offset;
  });
}

void index_of(const MemoryBlock& out, const MemoryBlock& in, const MemoryBlock& value, int dim,
              int64_t offset) {
  const Rows rows(in, dim), values = Rows::values("index_of", value, rows);
  const int64_t n = rows.size();
  const int64_t none = out.dtype == DType::i32 ? std::numeric_limits<int32_t>::max()
                                               : std::numeric_limits<int64_t>::max();
  store_found("index_of", out, in, dim, [&]<class C>(const C* x, int64_t row) {
    const int64_t index = first_equal(x, n, RowValues<C>(values)[row]);
    return index == n ? none : index + offset;
  });
}

}  // namespace weft::host

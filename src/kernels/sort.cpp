// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/sort.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "src/kernels/rows.h"
#include "src/parallel.h"
#include "weft/error.h"

namespace weft {

/// Whether element a of a row comes before b: NaN above all, equal ones in the order of the row.
template <class C>
struct ComesBefore {
  const C* x;
  bool descending;

  bool less(C a, C b) const { return a < b || (a == a && b != b); }
  bool operator()(int64_t a, int64_t b) const {
    const C first = x[a], second = x[b];
    if (descending ? less(second, first) : less(first, second)) return true;
    if (descending ? less(first, second) : less(second, first)) return false;
    return a < b;
  }
};

void sort_rows(const Block& values, const Block& indices, const Block& in, bool descending,
               int64_t offset) {
  const int last = in.shape.ndim() - 1;
  const Rows from(in, last), to(values, last), where(indices, last);
  check_rows("sort_rows", to, where);
  const int64_t n = from.size(), k = to.size();
  if (from.count() != to.count() || k > n) {
    fail("sort_rows: results of ", values.shape, " from ", in.shape);
  }
  visit_compute(in.dtype, [&](auto type) {
    using C = typename decltype(type)::type;
    parallel_for(from.count(), grain_of(n * 16), [&](int64_t begin, int64_t end) {
      RowReader<C> read(from);
      RowWriter<C> write(to);
      RowWriter<int64_t> write_indices(where);
      std::vector<int64_t> order(static_cast<size_t>(n));
      for (int64_t r = begin; r < end; ++r) {
        const C* x = read(r);
        std::iota(order.begin(), order.end(), int64_t{0});
        const ComesBefore<C> before{x, descending};
        if (k == n) {
          std::sort(order.begin(), order.end(), before);
        } else {
          std::partial_sort(order.begin(), order.begin() + k, order.end(), before);
        }
        C* sorted = write.begin(r);
        int64_t* index = write_indices.begin(r);
        for (int64_t i = 0; i < k; ++i) {
          sorted[i] = x[order[static_cast<size_t>(i)]];
          index[i] = order[static_cast<size_t>(i)] + offset;
        }
        write.end();
        write_indices.end();
      }
    });
  });
}

}  // namespace weft

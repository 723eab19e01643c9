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

/// One row: the first k of `order`, which are indices of its elements.
template <class C>
static void order_row(std::vector<int64_t>& order, int64_t k, const C* x, bool descending) {
  std::iota(order.begin(), order.end(), int64_t{0});
  const ComesBefore<C> before{x, descending};
  if (k == static_cast<int64_t>(order.size())) {
    std::sort(order.begin(), order.end(), before);
  } else {
    std::partial_sort(order.begin(), order.begin() + k, order.end(), before);
  }
}

template <class C>
static void sort_rows_as(const Rows* values, const Rows& indices, const Rows& in, bool descending,
                         int64_t offset) {
  const int64_t n = in.size(), k = indices.size();
  parallel_for(in.count(), grain_of(n * 16), [&](int64_t begin, int64_t end) {
    RowReader<C> read(in);
    RowWriter<C> write(values ? *values : in);
    RowWriter<int64_t> write_indices(indices);
    std::vector<int64_t> order(static_cast<size_t>(n));
    for (int64_t r = begin; r < end; ++r) {
      const C* x = read(r);
      order_row(order, k, x, descending);
      int64_t* index = write_indices.begin(r);
      for (int64_t i = 0; i < k; ++i) index[i] = order[static_cast<size_t>(i)] + offset;
      write_indices.end();
      if (!values) continue;
      C* sorted = write.begin(r);
      for (int64_t i = 0; i < k; ++i) sorted[i] = x[order[static_cast<size_t>(i)]];
      write.end();
    }
  });
}

void sort_rows(const Block& values, const Block& indices, const Block& in, bool descending,
               int64_t offset) {
  const int last = in.shape.ndim() - 1;
  const Rows from(in, last), to(values, last), where(indices, last);
  check_rows("sort_rows", to, where);
  if (from.count() != to.count() || to.size() > from.size()) {
    fail("sort_rows: results of ", values.shape, " from ", in.shape);
  }
  visit_compute(in.dtype, [&](auto type) {
    sort_rows_as<typename decltype(type)::type>(&to, where, from, descending, offset);
  });
}

void argsort_rows(const Block& indices, const Block& in, bool descending) {
  const int last = in.shape.ndim() - 1;
  const Rows from(in, last), where(indices, last);
  check_rows("argsort_rows", from, where);
  visit_compute(in.dtype, [&](auto type) {
    sort_rows_as<typename decltype(type)::type>(nullptr, where, from, descending, 0);
  });
}

}  // namespace weft

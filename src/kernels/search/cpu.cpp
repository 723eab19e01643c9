// SPDX-License-Identifier: Apache-2.0
#include "src/base/parallel.h"
#include "src/kernels/search/search.h"
#include "weft/error.h"

namespace weft {

SearchedRows::SearchedRows(const MemoryBlock& out_block, const MemoryBlock& sorted_block,
                           const MemoryBlock& values_block)
    : sorted(sorted_block, sorted_block.shape.ndim() - 1),
      values(values_block, values_block.shape.ndim()),
      out(out_block, out_block.shape.ndim()),
      values_of_row(1) {
  const bool one = sorted_block.shape.ndim() == 1;
  values_of_row = one ? std::max<int64_t>(1, values.count()) : values_block.shape.back();
  if (out.count() != values.count() || (!one && sorted.count() * values_of_row != values.count())) {
    fail("search_sorted: the values are ", values_block.shape, " for results ", out_block.shape,
         ", expected a row for each of ", sorted_block.shape);
  }
}

}  // namespace weft

namespace weft::host {

template <class C>
static void search(const SearchedRows& rows, bool right) {
  parallel_for(rows.values.count(), grain_of(16), [&](int64_t begin, int64_t end) {
    RowReader<C> read(rows.sorted, rows.sorted.count());
    const RowValues<C> values(rows.values);
    const RowValues<int64_t> out(rows.out);
    int64_t row = -1;
    const C* sorted = nullptr;
    for (int64_t i = begin; i < end; ++i) {
      if (i / rows.values_of_row != row) {
        row = i / rows.values_of_row;
        sorted = read(row);
      }
      out.set(i, found_place(
                     rows.sorted.size(), [sorted](int64_t at) { return sorted[at]; }, values[i],
                     right));
    }
  });
}

void search_sorted(const MemoryBlock& out, const MemoryBlock& sorted, const MemoryBlock& values,
                   bool right) {
  const SearchedRows rows(out, sorted, values);
  visit_compute(sorted.dtype,
                [&](auto type) { search<typename decltype(type)::type>(rows, right); });
}

}  // namespace weft::host

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

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

/// Values searched together, so that the processor waits for the memory of all at once.
static constexpr int kTogether = 16;

/// The block's elements when they are dense and of type C, else null.
template <class C>
static C* dense_elements(const MemoryBlock& block) {
  return block.is_dense() && block.dtype == dtype_of<C> ? block.as<C>() : nullptr;
}

template <class C, bool kRight>
static void search(const SearchedRows& rows, const C* values, int64_t* places) {
  parallel_for(rows.values.count(), grain_of(16), [&](int64_t begin, int64_t end) {
    RowReader<C> read(rows.sorted, rows.sorted.count());
    const RowValues<C> any_values(rows.values);
    const RowValues<int64_t> any_places(rows.out);
    C value[kTogether] = {};
    int64_t place[kTogether];
    for (int64_t i = begin, n = 0; i < end; i += n) {
      const int64_t row = i / rows.values_of_row;
      n = std::min({int64_t{kTogether}, end - i, (row + 1) * rows.values_of_row - i});
      const C* sorted = read(row);
      for (int64_t j = 0; j < n; ++j) value[j] = values ? values[i + j] : any_values[i + j];
      find_places<kRight, kTogether>(
          rows.sorted.size(), [sorted](int64_t at) { return sorted[at]; }, value, place);
      for (int64_t j = 0; j < n; ++j) {
        if (places) {
          places[i + j] = place[j];
        } else {
          any_places.set(i + j, place[j]);
        }
      }
    }
  });
}

void search_sorted(const MemoryBlock& out, const MemoryBlock& sorted, const MemoryBlock& values,
                   bool right) {
  const SearchedRows rows(out, sorted, values);
  auto* places = dense_elements<int64_t>(out);
  visit_compute(sorted.dtype, [&](auto type) {
    using C = typename decltype(type)::type;
    const C* elements = dense_elements<C>(values);
    right ? search<C, true>(rows, elements, places) : search<C, false>(rows, elements, places);
  });
}

}  // namespace weft::host

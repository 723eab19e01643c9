// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <vector>

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
template <class C> static C* dense_elements(const MemoryBlock& block) {
  return block.is_dense() && block.dtype == dtype_of<C> ? block.as<C>() : nullptr;
}

/// Not inlined: its loops over the values then had branches.
template <class C, bool kRight>
[[gnu::noinline]] static void search_together(int64_t n, const C* sorted, const C* values,
                                              int64_t* places) {
  find_places<kRight, kTogether>(
      n, [sorted](int64_t at) { return sorted[at]; }, values, places);
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
      search_together<C, kRight>(rows.sorted.size(), sorted, value, place);
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
  visit_compute(sorted.dtype, [&]<class C>(Type<C>) {
    const C* elements = dense_elements<C>(values);
    right ? search<C, true>(rows, elements, places) : search<C, false>(rows, elements, places);
  });
}

/// Elements of a mask that one task counts, then places, and that it places at a time.
static constexpr int64_t kMaskTask = 65536, kMaskChunk = 1024;

static void place_true(int64_t* out, const bool* mask, int64_t begin, int64_t end) {
  int64_t places[kMaskChunk];
  for (int64_t first = begin; first < end; first += kMaskChunk) {
    int64_t count = 0;
    const int64_t last = std::min(end, first + kMaskChunk);
    for (int64_t i = first; i < last; ++i) {
      places[count] = i;
      count += mask[i];
    }
    out = std::copy_n(places, count, out);
  }
}

void true_places(const MemoryBlock& out, const MemoryBlock& mask) {
  const int64_t n = mask.numel(), tasks = (n + kMaskTask - 1) / kMaskTask;
  const bool* holds = mask.as<bool>();
  const auto end_of = [n](int64_t task) { return std::min(n, (task + 1) * kMaskTask); };
  std::vector<int64_t> starts(static_cast<size_t>(tasks));
  parallel_for(tasks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      int64_t count = 0;
      for (int64_t i = task * kMaskTask; i < end_of(task); ++i) count += holds[i];
      starts[static_cast<size_t>(task)] = count;
    }
  });
  const int64_t found = std::accumulate(starts.begin(), starts.end(), int64_t{0});
  std::exclusive_scan(starts.begin(), starts.end(), starts.begin(), int64_t{0});
  for (int64_t i = found; i < out.numel(); ++i) out.as<int64_t>()[i] = 0;
  parallel_for(tasks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      place_true(out.as<int64_t>() + starts[static_cast<size_t>(task)], holds, task * kMaskTask,
                 end_of(task));
    }
  });
}

}  // namespace weft::host

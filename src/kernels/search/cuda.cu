// SPDX-License-Identifier: Apache-2.0
#include "src/device/cuda/streams.h"
#include "src/device/kernel/launch.h"
#include "src/kernels/copy/dense.h"
#include "src/kernels/rows/device_values.h"
#include "src/kernels/scan/scan.h"
#include "src/kernels/search/search.h"

namespace weft::cuda {

namespace {

/// Elements of a row of `rows`.
template <class C> struct RowElements {
  const Rows& rows;
  int64_t row;
  WEFT_DEVICE C operator()(int64_t i) const { return value_of<C>(rows, row, i); }
};

template <class C, bool kRight> struct SearchSorted {
  SearchedRows rows;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t i = thread.index; i < rows.values.count(); i += thread.count) {
      const RowElements<C> elements{rows.sorted, i / rows.values_of_row};
      const C value = value_of<C>(rows.values, i);
      int64_t place;
      find_places<kRight, 1>(rows.sorted.size(), elements, &value, &place);
      set_value(rows.out, i, place);
    }
  }
};

struct PlaceTrue {
  const bool* mask;
  const int64_t* ranks;
  int64_t* places;
  int64_t size, places_size;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t i = thread.index; i < size; i += thread.count) {
      if (mask[i]) places[ranks[i] - 1] = i;
      if (i < places_size && i >= ranks[size - 1]) places[i] = 0;
    }
  }
};

}  // namespace

void search_sorted(const MemoryBlock& out, const MemoryBlock& sorted, const MemoryBlock& values,
                   bool right) {
  const SearchedRows rows(out, sorted, values);
  if (rows.values.count() == 0) return;
  const Stream stream = current_stream(out.device);
  visit_compute(sorted.dtype, [&]<class C>(Type<C>) {
    if (right) {
      launch(SearchSorted<C, true>{rows}, rows.values.count(), stream);
    } else {
      launch(SearchSorted<C, false>{rows}, rows.values.count(), stream);
    }
  });
}

void true_places(const MemoryBlock& out, const MemoryBlock& mask) {
  const int64_t n = mask.numel();
  if (out.numel() == 0) return;
  const DenseMemory ranks(mask.shape, DType::i64, mask.device);
  cuda::running_total(Running::sum, ranks.block, mask, 0);
  launch(PlaceTrue{mask.as<bool>(), ranks.block.as<int64_t>(), out.as<int64_t>(), n, out.numel()},
         n, current_stream(mask.device));
}

}  // namespace weft::cuda

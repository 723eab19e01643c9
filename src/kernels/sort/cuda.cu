// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/sort/sort.h"

#include <algorithm>
#include <utility>

#include "src/device/cuda/runtime.h"
#include "src/device/kernel/launch.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/rows/rows.h"
#include "src/kernels/scan/scan.h"

namespace weft::cuda {

// Thread blocks sort runs of keys in shared memory; then pairs of runs are merged until each row is
// one run.

namespace {

constexpr int kSortThreads = 256;
/// Keys that a thread block sorts.
constexpr int kSortTile = 2048;

/// Rows split into runs of `run` keys, a power of two; the last run of a row may be shorter.
struct Sorting {
  int64_t rows, size, run, runs_of_row;
};

/// Each thread block sorts kSortTile / run runs with Batcher's bitonic network.
template <class C, class Key> struct SortRuns {
  Sorting shape;
  Rows in;
  bool descending;
  /// [rows, size], dense.
  Key* keys;

  template <class ThreadBlock> WEFT_DEVICE void operator()(const ThreadBlock& block) const {
    Key* tile = block.template shared<Key>();
    const int64_t first_run = block.index() * (kSortTile / shape.run);
    for (int i = block.thread(); i < kSortTile; i += block.threads()) {
      int64_t row, index;
      tile[i] = Key::last();
      if (!find(first_run, i, row, index)) continue;
      const uint64_t order = ordered(value_of<C>(in, row, index));
      tile[i] = Key::of(descending ? ~order : order, index);
    }
    block.sync();
    for (int64_t sorted = 2; sorted <= shape.run; sorted *= 2) {
      for (int64_t apart = sorted / 2; apart > 0; apart /= 2) {
        exchange(block, tile, static_cast<int>(sorted), static_cast<int>(apart));
        block.sync();
      }
    }
    for (int i = block.thread(); i < kSortTile; i += block.threads()) {
      int64_t row, index;
      if (find(first_run, i, row, index)) keys[row * shape.size + index] = tile[i];
    }
  }

  /// Finds the row and the index of key `i` of a tile; returns false when there is none.
  WEFT_DEVICE bool find(int64_t first_run, int i, int64_t& row, int64_t& index) const {
    const int64_t run = first_run + i / shape.run;
    row = run / shape.runs_of_row;
    index = run % shape.runs_of_row * shape.run + i % shape.run;
    return row < shape.rows && index < shape.size;
  }

  template <class ThreadBlock>
  WEFT_DEVICE void exchange(const ThreadBlock& block, Key* tile, int sorted, int apart) const {
    for (int i = block.thread(); i < kSortTile / 2; i += block.threads()) {
      const int low = i / apart * 2 * apart + i % apart, high = low + apart;
      // Neighbouring parts are sorted alternately upwards and downwards; a whole run upwards.
      const bool upwards = (low & sorted) == 0 || sorted == shape.run;
      const Key a = tile[low], b = tile[high];
      if ((b < a) == upwards) tile[low] = b, tile[high] = a;
    }
  }
};

/// Writes each key to its place: its index in its run plus the number of smaller keys in the
/// neighbouring run.
template <class Key> struct MergeRuns {
  Sorting shape;
  const Key* from;
  Key* to;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t i = thread.index; i < shape.rows * shape.size; i += thread.count) {
      const int64_t row = i / shape.size, index = i - row * shape.size;
      const Key* keys = from + row * shape.size;
      const int64_t run = index / shape.run, pair = run / 2 * 2 * shape.run;
      const int64_t beside = run % 2 == 0 ? pair + shape.run : pair;
      const int64_t before = count_before(keys, beside, keys[index]);
      to[row * shape.size + pair + (index - run * shape.run) + before] = keys[index];
    }
  }

  /// Returns how many keys of the run that starts at `first` come before `key`.
  WEFT_DEVICE int64_t count_before(const Key* keys, int64_t first, const Key& key) const {
    int64_t low = first, high = first + shape.run < shape.size ? first + shape.run : shape.size;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (keys[middle] < key) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low - first;
  }
};

/// Stores the first keys of each row; `values` may have no data.
template <class C, class Key> struct StoreSorted {
  int64_t size, offset;
  const Key* keys;
  Rows in, values, indices;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t i = thread.index; i < indices.count() * indices.size(); i += thread.count) {
      const int64_t row = i / indices.size(), place = i - row * indices.size();
      const int64_t index = keys[row * size + place].index();
      set_value(indices, row, place, index + offset);
      if (!values.data()) continue;
      const C x = value_of<C>(in, row, index);
      set_value(values, row, place, x);
    }
  }
};

template <class C, bool kRight> struct SearchSorted {
  SearchedRows rows;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t i = thread.index; i < rows.values.count(); i += thread.count) {
      const int64_t row = i / rows.values_of_row;
      const C value = value_of<C>(rows.values, i);
      int64_t place;
      find_places<kRight, 1>(
          rows.sorted.size(), [&](int64_t at) { return value_of<C>(rows.sorted, row, at); }, &value,
          &place);
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

template <class C, class Key>
static void sort_keys(const SortedRows& rows, bool descending, int64_t offset, Device device) {
  const auto& [in, values, indices] = rows;
  const Stream stream = current_stream(device);
  Sorting shape{in.count(), in.size(), 1, 1};
  while (shape.run < std::min<int64_t>(in.size(), kSortTile)) shape.run *= 2;
  shape.runs_of_row = (in.size() + shape.run - 1) / shape.run;
  const auto bytes = static_cast<size_t>(in.count() * in.size()) * sizeof(Key);
  const Ref<Storage> memory = Storage::allocate(bytes, device);
  const Ref<Storage> other_memory =
      Storage::allocate(shape.runs_of_row > 1 ? bytes : sizeof(Key), device);
  auto *keys = static_cast<Key*>(memory->data()), *other = static_cast<Key*>(other_memory->data());
  const int64_t runs = in.count() * shape.runs_of_row, runs_of_block = kSortTile / shape.run;
  launch_blocks<kSortThreads>(SortRuns<C, Key>{shape, in, descending, keys},
                              (runs + runs_of_block - 1) / runs_of_block, kSortTile * sizeof(Key),
                              stream);
  for (; shape.run < in.size(); shape.run *= 2) {
    launch(MergeRuns<Key>{shape, keys, other}, in.count() * in.size(), stream);
    std::swap(keys, other);
  }
  launch(StoreSorted<C, Key>{in.size(), offset, keys, in, values, indices},
         indices.count() * indices.size(), stream);
}

void sort_rows(const MemoryBlock* values, const MemoryBlock& indices, const MemoryBlock& in,
               bool descending, int64_t offset) {
  const SortedRows rows(values, indices, in);
  if (rows.indices.count() * rows.indices.size() == 0) return;
  visit_compute(in.dtype, [&]<class C>(Type<C>) {
    visit_keys<C>(rows.in.size(), [&]<class Key>(Type<Key>) {
      sort_keys<C, Key>(rows, descending, offset, in.device);
    });
  });
}

void search_sorted(const MemoryBlock& out, const MemoryBlock& sorted, const MemoryBlock& values,
                   bool right) {
  const SearchedRows rows(out, sorted, values);
  if (rows.values.count() == 0) return;
  const Stream stream = current_stream(out.device);
  visit_compute(sorted.dtype, [&]<class C>(Type<C>) {
    right ? launch(SearchSorted<C, true>{rows}, rows.values.count(), stream)
          : launch(SearchSorted<C, false>{rows}, rows.values.count(), stream);
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

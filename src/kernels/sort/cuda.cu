// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/sort/sort.h"

#include <algorithm>
#include <utility>

#include "src/device/cuda/streams.h"
#include "src/device/kernel/launch.h"
#include "src/kernels/rows/device_values.h"
#include "weft/storage.h"

namespace weft::cuda {

// Each element of a row becomes an entry: an integer with the same order, and the element's index.
// No two entries of a row are equal, so any sort is stable. Thread blocks sort runs of entries in
// shared memory; then pairs of runs are merged until each row is one run.

namespace {

constexpr int kSortThreads = 256;
/// Entries that a thread block sorts.
constexpr int kSortTile = 2048;

/// Entry of floats, in rows of less than 2^32 elements.
struct NarrowEntry {
  uint64_t bits;

  WEFT_FN static NarrowEntry of(uint64_t key, int64_t index, bool descending) {
    return {(descending ? ~key : key) << 32 | static_cast<uint64_t>(index)};
  }
  /// An entry that comes after all others.
  WEFT_FN static NarrowEntry last() { return {~uint64_t{0}}; }
  WEFT_FN bool before(const NarrowEntry& other) const { return bits < other.bits; }
  WEFT_FN int64_t index() const { return static_cast<int64_t>(bits & 0xffffffffu); }
};

struct WideEntry {
  uint64_t key, place;

  WEFT_FN static WideEntry of(uint64_t key, int64_t index, bool descending) {
    return {descending ? ~key : key, static_cast<uint64_t>(index)};
  }
  WEFT_FN static WideEntry last() { return {~uint64_t{0}, ~uint64_t{0}}; }
  WEFT_FN bool before(const WideEntry& other) const {
    return key < other.key || (key == other.key && place < other.place);
  }
  WEFT_FN int64_t index() const { return static_cast<int64_t>(place); }
};

/// Rows split into runs of `run` entries, a power of two; the last run of a row may be shorter.
struct Sorting {
  int64_t rows, size, run, runs_of_row;
};

/// Each thread block sorts kSortTile / run runs with Batcher's bitonic network.
template <class C, class Entry> struct SortRuns {
  Sorting shape;
  Rows in;
  bool descending;
  /// [rows, size], dense.
  Entry* entries;

  template <class ThreadBlock> WEFT_DEVICE void operator()(const ThreadBlock& block) const {
    Entry* tile = block.template shared<Entry>();
    const int64_t first_run = block.index() * (kSortTile / shape.run);
    for (int i = block.thread(); i < kSortTile; i += block.threads()) {
      int64_t row, index;
      tile[i] = Entry::last();
      if (!find(first_run, i, row, index)) continue;
      const C x = value_of<C>(in, row, index);
      tile[i] = Entry::of(ordered(x), index, descending);
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
      if (find(first_run, i, row, index)) entries[row * shape.size + index] = tile[i];
    }
  }

  /// Finds the row and the index of entry `i` of a tile; returns false when there is none.
  WEFT_DEVICE bool find(int64_t first_run, int i, int64_t& row, int64_t& index) const {
    const int64_t run = first_run + i / shape.run;
    row = run / shape.runs_of_row;
    index = run % shape.runs_of_row * shape.run + i % shape.run;
    return row < shape.rows && index < shape.size;
  }

  template <class ThreadBlock>
  WEFT_DEVICE void exchange(const ThreadBlock& block, Entry* tile, int sorted, int apart) const {
    for (int i = block.thread(); i < kSortTile / 2; i += block.threads()) {
      const int low = i / apart * 2 * apart + i % apart, high = low + apart;
      // Neighbouring parts are sorted alternately upwards and downwards; a whole run upwards.
      const bool upwards = (low & sorted) == 0 || sorted == shape.run;
      const Entry a = tile[low], b = tile[high];
      if (b.before(a) == upwards) tile[low] = b, tile[high] = a;
    }
  }
};

/// Writes each entry to its place: its index in its run plus the number of smaller entries in the
/// neighbouring run.
template <class Entry> struct MergeRuns {
  Sorting shape;
  const Entry* from;
  Entry* to;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t i = thread.index; i < shape.rows * shape.size; i += thread.count) {
      const int64_t row = i / shape.size, index = i - row * shape.size;
      const Entry* entries = from + row * shape.size;
      const int64_t run = index / shape.run, pair = run / 2 * 2 * shape.run;
      const int64_t beside = run % 2 == 0 ? pair + shape.run : pair;
      const int64_t before = count_before(entries, beside, entries[index]);
      to[row * shape.size + pair + (index - run * shape.run) + before] = entries[index];
    }
  }

  /// Returns how many entries of the run that starts at `first` come before `entry`.
  WEFT_DEVICE int64_t count_before(const Entry* entries, int64_t first, const Entry& entry) const {
    int64_t low = first, high = first + shape.run < shape.size ? first + shape.run : shape.size;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (entries[middle].before(entry)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low - first;
  }
};

/// Stores the first entries of each row; `values` may have no data.
template <class C, class Entry> struct StoreSorted {
  int64_t size, offset;
  const Entry* entries;
  Rows in, values, indices;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t i = thread.index; i < indices.count() * indices.size(); i += thread.count) {
      const int64_t row = i / indices.size(), place = i - row * indices.size();
      const int64_t index = entries[row * size + place].index();
      set_value(indices, row, place, index + offset);
      if (!values.data()) continue;
      const C x = value_of<C>(in, row, index);
      set_value(values, row, place, x);
    }
  }
};

}  // namespace

template <class C, class Entry>
static void sort_entries(const SortedRows& rows, bool descending, int64_t offset, Device device) {
  const auto& [in, values, indices] = rows;
  const Stream stream = current_stream(device);
  Sorting shape{in.count(), in.size(), 1, 1};
  while (shape.run < std::min<int64_t>(in.size(), kSortTile)) shape.run *= 2;
  shape.runs_of_row = (in.size() + shape.run - 1) / shape.run;
  const auto bytes = static_cast<size_t>(in.count() * in.size()) * sizeof(Entry);
  const Ref<Storage> memory = Storage::allocate(bytes, device);
  const Ref<Storage> other_memory =
      Storage::allocate(shape.runs_of_row > 1 ? bytes : sizeof(Entry), device);
  auto *entries = static_cast<Entry*>(memory->data()),
       *other = static_cast<Entry*>(other_memory->data());
  const int64_t runs = in.count() * shape.runs_of_row, runs_of_block = kSortTile / shape.run;
  launch_blocks<kSortThreads>(SortRuns<C, Entry>{shape, in, descending, entries},
                              (runs + runs_of_block - 1) / runs_of_block, kSortTile * sizeof(Entry),
                              stream);
  for (; shape.run < in.size(); shape.run *= 2) {
    launch(MergeRuns<Entry>{shape, entries, other}, in.count() * in.size(), stream);
    std::swap(entries, other);
  }
  launch(StoreSorted<C, Entry>{in.size(), offset, entries, in, values, indices},
         indices.count() * indices.size(), stream);
}

void sort_rows(const MemoryBlock* values, const MemoryBlock& indices, const MemoryBlock& in,
               bool descending, int64_t offset) {
  const SortedRows rows(values, indices, in);
  if (rows.indices.count() * rows.indices.size() == 0) return;
  visit_compute(in.dtype, [&](auto type) {
    using C = typename decltype(type)::type;
    if constexpr (std::is_same_v<C, float>) {
      if (rows.in.size() < int64_t{1} << 32) {
        return sort_entries<C, NarrowEntry>(rows, descending, offset, in.device);
      }
    }
    sort_entries<C, WideEntry>(rows, descending, offset, in.device);
  });
}

}  // namespace weft::cuda

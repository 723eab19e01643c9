// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/scan/scan.h"

#include "src/base/numeric.h"
#include "src/device/cuda/runtime.h"
#include "src/device/kernel/launch.h"
#include "src/kernels/rows/rows.h"

namespace weft::cuda {

namespace {

constexpr int kScanThreads = 256;
/// Neighbours that a thread of a block handles, one after the other.
constexpr int kScanRun = 8;
/// Rows up to this length, or this many rows of any length, get one thread each.
constexpr int64_t kShortRow = 32, kManyRows = 1 << 14;

// A scan defines the value of an element (`load`), how two values combine, the earlier first, and
// how to store an element, given the scan up to it (`store`).

/// Running sums or products by R; `start` precedes all elements.
template <class R, class C> struct RunningTotal {
  using State = C;
  Rows in, out, start;

  WEFT_DEVICE State first(int64_t row) const {
    if (!start.data()) return R::template identity<C>();
    return value_of<C>(start, row);
  }
  WEFT_DEVICE State load(int64_t row, int64_t i) const { return value_of<C>(in, row, i); }
  WEFT_DEVICE static State combine(const State& a, const State& b) { return R::combine(a, b); }
  WEFT_DEVICE void store(int64_t row, int64_t i, const State& total) const {
    set_value(out, row, i, total);
  }
};

/// Extremes and their indices; see cumulative_extreme.
template <class C, bool kGreatest> struct RunningExtreme {
  using State = Extreme<C>;
  ExtremeRows rows;
  int64_t offset;

  WEFT_DEVICE State first(int64_t row) const {
    if (!rows.start.data()) return {C(0), -1};
    return {value_of<C>(rows.start, row), value_of<int64_t>(rows.start_index, row)};
  }
  WEFT_DEVICE State load(int64_t row, int64_t i) const {
    const int64_t number =
        rows.numbers.data() ? value_of<int64_t>(rows.numbers, row, i) : i + offset;
    return {value_of<C>(rows.in, row, i), number};
  }
  WEFT_DEVICE static State combine(const State& a, const State& b) { return a.with(b, kGreatest); }
  WEFT_DEVICE void store(int64_t row, int64_t i, const State& extreme) const {
    set_value(rows.values, row, i, extreme.value);
    set_value(rows.indices, row, i, extreme.index);
  }
};

/// One thread per row.
template <class Scan> struct ScanByThread {
  Scan scan;
  int64_t rows, size;
  bool reverse;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t row = thread.index; row < rows; row += thread.count) {
      typename Scan::State state = scan.first(row);
      for (int64_t i = 0; i < size; ++i) {
        const int64_t j = reverse ? size - 1 - i : i;
        state = Scan::combine(state, scan.load(row, j));
        scan.store(row, j, state);
      }
    }
  }
};

/// One thread block per row; each thread handles kScanRun neighbours at a time.
template <class Scan> struct ScanByBlock {
  using State = typename Scan::State;
  Scan scan;
  int64_t size;
  bool reverse;

  /// Shared memory for a tile's elements, padded so that threads' runs start in different banks,
  /// and for the totals of the threads, twice.
  static constexpr int kPlaces = kScanThreads * (kScanRun + 1);
  static constexpr size_t kBytes = sizeof(State) * (kPlaces + 2 * kScanThreads + 1);
  WEFT_FN static int place(int i) { return i + i / kScanRun; }

  template <class ThreadBlock> WEFT_DEVICE void operator()(const ThreadBlock& block) const {
    State* elements = block.template shared<State>();
    State *totals = elements + kPlaces, *carried = totals + 2 * kScanThreads;
    const int64_t row = block.index(), tile = int64_t{block.threads()} * kScanRun;
    State before = scan.first(row);
    for (int64_t first = 0; first < size; first += tile) {
      const int count = static_cast<int>(size - first < tile ? size - first : tile);
      for (int i = block.thread(); i < count; i += block.threads()) {
        elements[place(i)] = scan.load(row, index(first + i));
      }
      block.sync();
      before = scan_tile(block, elements, totals, carried, count, before);
      for (int i = block.thread(); i < count; i += block.threads()) {
        const int64_t j = index(first + i);
        scan.store(row, j, Scan::combine(elements[place(i)], scan.load(row, j)));
      }
      block.sync();
    }
  }

  WEFT_DEVICE int64_t index(int64_t i) const { return reverse ? size - 1 - i : i; }

  /// Replaces elements by the scan before them; returns the scan before the next tile.
  template <class ThreadBlock>
  WEFT_DEVICE static State scan_tile(const ThreadBlock& block, State* elements, State* totals,
                                     State* carried, int count, const State& before) {
    const int begin = block.thread() * kScanRun;
    const int end = begin + kScanRun < count ? begin + kScanRun : count;
    const int runs = (count + kScanRun - 1) / kScanRun;
    if (begin < count) {
      State total = elements[place(begin)];
      for (int i = begin + 1; i < end; ++i) total = Scan::combine(total, elements[place(i)]);
      totals[block.thread()] = total;
    }
    block.sync();
    State *from = totals, *to = totals + kScanThreads;
    for (int distance = 1; distance < runs; distance *= 2) {
      if (block.thread() < runs) {
        const State own = from[block.thread()];
        to[block.thread()] =
            block.thread() >= distance ? Scan::combine(from[block.thread() - distance], own) : own;
      }
      block.sync();
      State* const other = from;
      from = to, to = other;
    }
    if (begin < count) {
      State sum = block.thread() > 0 ? Scan::combine(before, from[block.thread() - 1]) : before;
      for (int i = begin; i < end; ++i) {
        const State next = Scan::combine(sum, elements[place(i)]);
        elements[place(i)] = sum;
        sum = next;
      }
      if (end == count) *carried = sum;
    }
    block.sync();
    return *carried;
  }
};

}  // namespace

template <class Scan>
static void run_scan(const Scan& scan, const Rows& rows, bool reverse, const Stream& stream) {
  if (rows.count() == 0 || rows.size() == 0) return;
  const bool neighbours = rows.stride() != 1 && rows.count() >= kManyRows;
  if (rows.size() <= kShortRow || neighbours) {
    return launch(ScanByThread<Scan>{scan, rows.count(), rows.size(), reverse}, rows.count(),
                  stream);
  }
  launch_blocks<kScanThreads>(ScanByBlock<Scan>{scan, rows.size(), reverse}, rows.count(),
                              ScanByBlock<Scan>::kBytes, stream);
}

void running_total(Running kind, const MemoryBlock& out, const MemoryBlock& in, int dim,
                   bool reverse, const MemoryBlock* start) {
  const Rows from(in, dim), to(out, dim);
  check_rows(name_of(kind), from, to);
  const Rows first = start ? Rows::values(name_of(kind), *start, from) : Rows();
  const Stream stream = current_stream(out.device);
  visit_running(kind, in.dtype, [&]<class R, class C>(Type<R>, Type<C>) {
    run_scan(RunningTotal<R, C>{from, to, first}, from, reverse, stream);
  });
}

void cumulative_extreme(const MemoryBlock& values, const MemoryBlock& indices,
                        const MemoryBlock& in, const ExtremeScan& scan) {
  const ExtremeRows rows(values, indices, in, scan);
  visit_compute(in.dtype, [&]<class C>(Type<C>) {
    const Stream stream = current_stream(values.device);
    if (scan.greatest) {
      run_scan(RunningExtreme<C, true>{rows, scan.offset}, rows.in, false, stream);
    } else {
      run_scan(RunningExtreme<C, false>{rows, scan.offset}, rows.in, false, stream);
    }
  });
}

}  // namespace weft::cuda

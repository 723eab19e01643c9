// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/scan/scan.h"

#include <algorithm>

#include "src/base/independent.h"
#include "src/base/parallel.h"
#include "src/kernels/rows/rows.h"

namespace weft::host {

/// It is not inlined: its total then went through an integer register each step, 4 times as slow.
template <class R, class C>
[[gnu::noinline]] static void scan_row(int64_t n, C* out, const C* in, C total, bool reverse) {
  for (int64_t i = 0; i < n; ++i) {
    const int64_t j = reverse ? n - 1 - i : i;
    total = R::combine(total, in[j]);
    out[j] = total;
  }
}

/// Rows scanned together, so that none waits for its last combination, and their elements at a
/// time. Rows in the buffer do not share cache sets.
static constexpr int kRowsTogether = 4;
static constexpr int64_t kScanned = 512, kScannedPitch = kScanned + 8;

/// Scans n elements of each row of the buffer in place, from its total on.
template <class R, class C>
[[gnu::noinline]] static void scan_rows(int64_t n, C* buffer, C* totals, bool reverse) {
  static_assert(kRowsTogether == 4);
  C a = totals[0], b = totals[1], c = totals[2], d = totals[3];
  for (int64_t i = 0; i < n; ++i) {
    C* x = buffer + (reverse ? n - 1 - i : i);
    x[0] = a = R::combine(a, x[0]);
    x[kScannedPitch] = b = R::combine(b, x[kScannedPitch]);
    x[2 * kScannedPitch] = c = R::combine(c, x[2 * kScannedPitch]);
    x[3 * kScannedPitch] = d = R::combine(d, x[3 * kScannedPitch]);
  }
  totals[0] = a, totals[1] = b, totals[2] = c, totals[3] = d;
}

/// Scans rows [begin, begin + rows).
template <class R, class C>
static void scan_together(const Rows& from, const Rows& to, int64_t begin, int rows, C* totals,
                          bool reverse) {
  C buffer[kRowsTogether * kScannedPitch];
  const int64_t size = from.size();
  for (int64_t done = 0; done < size; done += kScanned) {
    const int64_t n = std::min(kScanned, size - done), first = reverse ? size - done - n : done;
    for (int r = 0; r < rows; ++r) {
      load_line(buffer + r * kScannedPitch, moved(from.line(begin + r), first), n);
    }
    if (rows == kRowsTogether) scan_rows<R>(n, buffer, totals, reverse);
    for (int r = 0; r < rows; ++r) {
      C* row = buffer + r * kScannedPitch;
      if (rows < kRowsTogether) {
        scan_row<R>(n, row, row, totals[r], reverse);
        totals[r] = row[reverse ? 0 : n - 1];
      }
      store_line(moved(to.line(begin + r), first), row, n);
    }
  }
}

/// Adjacent rows scanned together, an element of each at a time.
static constexpr int64_t kScannedColumns = 128, kFewAdjacent = 4;

template <class R, class C>
[[gnu::noinline]] static void combine_columns(int64_t n, C* totals, const C* x) {
  WEFT_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) totals[i] = R::combine(totals[i], x[i]);
}

/// Scans rows [begin, begin + rows), which are adjacent, from their totals on.
template <class R, class C>
static void scan_columns(const Rows& from, const Rows& to, int64_t begin, int64_t rows, C* totals,
                         bool reverse) {
  C buffer[kScannedColumns];
  Line in = from.line(begin), out = to.line(begin);
  const int64_t size = from.size(), first = reverse ? size - 1 : 0, step = reverse ? -1 : 1;
  in = moved(in, first), out = moved(out, first);
  for (int64_t i = 0; i < size; ++i) {
    const Line x{in.dtype, in.data}, y{out.dtype, out.data};
    combine_columns<R>(rows, totals, dense_line(x, rows, buffer));
    store_line(y, totals, rows);
    in = moved(in, step), out = moved(out, step);
  }
}

template <class R, class C>
static void scan_as(const Rows& from, const Rows& to, const Rows& starts, bool reverse) {
  const auto start_of = [&](int64_t r) {
    return starts.data() ? value_of<C>(starts, r) : R::template identity<C>();
  };
  // Integers, which are added in one cycle, are faster without a buffer.
  const bool dense = std::is_floating_point_v<C> && from.stride() == 1 && to.stride() == 1;
  parallel_for(from.count(), grain_of(from.size()), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; dense && r < end; r += kRowsTogether) {
      const int rows = static_cast<int>(std::min<int64_t>(kRowsTogether, end - r));
      C totals[kRowsTogether];
      for (int i = 0; i < rows; ++i) totals[i] = start_of(r + i);
      scan_together<R>(from, to, r, rows, totals, reverse);
    }
    if (dense) return;
    RowReader<C> read(from, end);
    RowWriter<C> write(to, end);
    for (int64_t r = begin; r < end; ++r) {
      const int64_t last = std::min(end, r + kScannedColumns);
      const int64_t rows = std::min(from.side_by_side(r, last), to.side_by_side(r, last));
      if (rows >= kFewAdjacent) {
        C totals[kScannedColumns];
        for (int64_t i = 0; i < rows; ++i) totals[i] = start_of(r + i);
        scan_columns<R>(from, to, r, rows, totals, reverse);
        r += rows - 1;
        continue;
      }
      scan_row<R>(from.size(), write.begin(r), read(r), start_of(r), reverse);
      write.end();
    }
  });
}

void running_total(Running kind, const MemoryBlock& out, const MemoryBlock& in, int dim,
                   bool reverse, const MemoryBlock* start) {
  const Rows from(in, dim), to(out, dim);
  check_rows(name_of(kind), from, to);
  const Rows starts = start ? Rows::values(name_of(kind), *start, from) : Rows();
  visit_running(kind, in.dtype, [&]<class R, class C>(Type<R>, Type<C>) {
    scan_as<R, C>(from, to, starts, reverse);
  });
}

/// One row of cumulative_extreme, of elements with given indices.
template <class C>
static void numbered_extreme_row(int64_t n, C* values, int64_t* indices, const C* in, bool greatest,
                                 Extreme<C> found, const int64_t* numbers) {
  for (int64_t i = 0; i < n; ++i) {
    found = found.with({in[i], numbers[i]}, greatest);
    values[i] = found.value;
    indices[i] = found.index;
  }
}

/// The same with indices from `offset` on.
template <bool kGreatest, class C>
static void extreme_row(int64_t n, C* values, int64_t* indices, const C* in, Extreme<C> found,
                        int64_t offset) {
  if (n > 0) found = found.with({in[0], offset}, kGreatest);
  C value = found.value;
  int64_t index = found.index;
  for (int64_t i = 0; i < n; ++i) {
    const C x = in[i];
    if ((kGreatest ? x >= value : x <= value) || x != x) {
      value = x;
      index = i + offset;
    }
    values[i] = value;
    indices[i] = index;
  }
}

void cumulative_extreme(const MemoryBlock& values, const MemoryBlock& indices,
                        const MemoryBlock& in, const ExtremeScan& scan) {
  const ExtremeRows rows(values, indices, in, scan);
  visit_compute(in.dtype, [&]<class C>(Type<C>) {
    parallel_for(rows.in.count(), grain_of(rows.in.size()), [&](int64_t begin, int64_t end) {
      RowReader<C> read(rows.in, end);
      RowReader<int64_t> read_number(rows.numbers, end);
      RowWriter<C> write(rows.values, end);
      RowWriter<int64_t> write_index(rows.indices, end);
      for (int64_t r = begin; r < end; ++r) {
        Extreme<C> start{C(0), -1};
        if (rows.start.data()) {
          start = {value_of<C>(rows.start, r), value_of<int64_t>(rows.start_index, r)};
        }
        const int64_t* numbers = rows.numbers.data() ? read_number(r) : nullptr;
        C* to = write.begin(r);
        int64_t* index = write_index.begin(r);
        if (numbers) {
          numbered_extreme_row(rows.in.size(), to, index, read(r), scan.greatest, start, numbers);
        } else if (scan.greatest) {
          extreme_row<true>(rows.in.size(), to, index, read(r), start, scan.offset);
        } else {
          extreme_row<false>(rows.in.size(), to, index, read(r), start, scan.offset);
        }
        write.end();
        write_index.end();
      }
    });
  });
}

}  // namespace weft::host

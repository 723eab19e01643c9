// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/embedding/embedding.h"

#include "src/kernels/copy/copy.h"
#include "src/kernels/rows/device_rows.h"
#include "src/kernels/rows/row_functors.h"
#include "src/kernels/sort/sort.h"

namespace weft::cuda {

namespace {

/// One thread per chunk of a row.
template <class Line> struct GatherRows {
  SelectedRows sides;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    const int64_t chunks = sides.rows.size() / Line::kN;
    for (int64_t i = thread.index; i < sides.rows.count() * chunks; i += thread.count) {
      const int64_t r = i / chunks, c = i - r * chunks, index = sides.index(r);
      typename Line::Values values{};
      if (index >= 0) values = Line(sides.table, index).read(c);
      Line(sides.rows, r).write(c, values);
    }
  }
};

// The rows are sorted by target, so that rows for one table row are a run. The sort is stable and
// keeps the order of the ids.

/// Computes the target of each row; rows without one get the number of rows of the table.
struct FindTargets {
  SelectedRows sides;
  int64_t* targets;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t r = thread.index; r < sides.rows.count(); r += thread.count) {
      const int64_t index = sides.index(r);
      targets[r] = index >= 0 ? index : sides.table.count();
    }
  }
};

/// Rows that a thread loads before it adds them.
constexpr int kRowsAhead = 8;

/// table[target] += rows. A thread block handles a run of equal targets and a part of the columns;
/// blocks whose row does not start a run exit.
template <class Line> struct AddRuns {
  SelectedRows sides;
  /// The sorted targets, and the index of each one's row.
  const int64_t *targets, *order;
  bool accumulate, own;
  /// Thread blocks that share a run.
  int64_t parts;

  template <class ThreadBlock> WEFT_DEVICE void operator()(const ThreadBlock& block) const {
    const int64_t first = block.index() / parts, part = block.index() % parts;
    const int64_t target = targets[first];
    if (target >= sides.table.count() || (first > 0 && targets[first - 1] == target)) return;
    int64_t length;
    find_places<true, 1>(
        sides.rows.count() - first, [&](int64_t i) { return targets[first + i]; }, &target,
        &length);
    const int64_t end = first + length;
    const int64_t chunks = sides.rows.size() / Line::kN, step = parts * block.threads();
    for (int64_t c = part * block.threads() + block.thread(); c < chunks; c += step) {
      add_column(target, first, end, c);
    }
  }

  /// As on the CPU, sums for `own` tables start from the table's values; others add them last.
  WEFT_DEVICE void add_column(int64_t target, int64_t first, int64_t end, int64_t c) const {
    using Values = typename Line::Values;
    const Line to(sides.table, target);
    Values sum{};
    if (accumulate && own) sum = to.read(c);
    for (int64_t k = first; k < end; k += kRowsAhead) {
      Values ahead[kRowsAhead];
      for (int i = 0; i < kRowsAhead; ++i) {
        if (k + i < end) ahead[i] = Line(sides.rows, order[k + i]).read(c);
      }
      for (int i = 0; i < kRowsAhead; ++i) {
        if (k + i < end) sum = map_chunk(Sum<typename Line::C>{}, sum, ahead[i]);
      }
    }
    if (accumulate && !own) sum = map_chunk(Sum<typename Line::C>{}, to.read(c), sum);
    to.write(c, sum);
  }
};

}  // namespace

void gather_rows(const MemoryBlock& out, const MemoryBlock& table, const MemoryBlock& ids,
                 int64_t offset) {
  const SelectedRows sides(out, table, ids, offset);
  const int64_t count = sides.rows.count(), size = sides.rows.size();
  const auto gather = [&]<class Line>(Type<Line>) {
    launch(GatherRows<Line>{sides}, count * (size / Line::kN), current_stream(out.device));
  };
  if (!is_floating(table.dtype)) return gather(Type<AnyLine<int64_t>>{});
  visit_lines(
      plan_rows("embedding", out.device, count, size, {.rows = {&sides.table, &sides.rows}}),
      gather);
}

void scatter_add_rows(const MemoryBlock& table, const MemoryBlock& rows, const MemoryBlock& ids,
                      int64_t offset, bool accumulate) {
  const SelectedRows sides(rows, table, ids, offset);
  const int64_t count = sides.rows.count(), size = sides.rows.size();
  const RowPlan plan =
      plan_rows("embedding", table.device, count, size, {.rows = {&sides.table, &sides.rows}});
  const bool own = table.dtype == compute_dtype(table.dtype) && table.is_dense();
  if (!accumulate) cuda::fill(table, 0);
  if (count == 0 || size == 0) return;
  const Shape shape{count};
  const DenseMemory found(shape, DType::i64, table.device),
      targets(shape, DType::i64, table.device);
  const DenseMemory order(shape, DType::i64, table.device);
  launch(FindTargets{sides, found.block.as<int64_t>()}, count, plan.stream);
  cuda::sort_rows(&targets.block, order.block, found.block, false, 0);
  visit_lines(plan, [&]<class Line>(Type<Line>) {
    constexpr int kThreads = 128;
    const int64_t parts = std::clamp<int64_t>((size / Line::kN + kThreads - 1) / kThreads, 1, 64);
    launch_blocks<kThreads>(AddRuns<Line>{sides, targets.block.as<int64_t>(),
                                          order.block.as<int64_t>(), accumulate, own, parts},
                            count * parts, 0, plan.stream);
  });
}

}  // namespace weft::cuda

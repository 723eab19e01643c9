// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/reduce/reduce.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "src/base/independent.h"
#include "src/base/parallel.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/reduce/plan.h"
#include "src/kernels/rows/row_functors.h"
#include "src/kernels/rows/rows.h"
#include "weft/error.h"

namespace weft {

/// Elements of a part; the number of tasks from which on there are no parts; most parts.
static constexpr int64_t kPartElements = 65536, kEnoughTasks = 32, kMaxParts = 64;
/// Elements of a task by rows.
static constexpr int64_t kRowTaskElements = 16384;
static constexpr int64_t kFewColumns = 8;

ReduceViews::ReduceViews(const MemoryBlock& out_block, const MemoryBlock& in_block,
                         const Dims& dims)
    : in{in_block.data, in_block.dtype, in_block.device, {}, {}},
      out{out_block.data, out_block.dtype, out_block.device, {}, {}},
      reduced(in) {
  uint32_t is_reduced = 0;
  for (int64_t dim : dims) is_reduced |= 1u << dim;
  const int ndim = in_block.shape.ndim(), out_ndim = out_block.shape.ndim();
  const bool keeps = out_ndim == ndim;
  bool fits = keeps || out_ndim == ndim - dims.ndim();
  for (int i = 0, o = 0; fits && i < ndim; ++i) {
    const bool stays = (is_reduced >> i & 1u) == 0;
    const int64_t size = in_block.shape[i];
    MemoryBlock& view = stays ? in : reduced;
    view.shape.push_back(size), view.strides.push_back(in_block.strides[i]);
    if (stays) {
      fits = out_block.shape[o] == size;
      out.shape.push_back(size), out.strides.push_back(out_block.strides[o]);
    }
    if (stays || keeps) ++o;
  }
  if (!fits) {
    fail("reduce: result is ", out_block.shape, ", expected that of ", in_block.shape,
         " over dims ", dims);
  }
}

ReducePlan::ReducePlan(const MemoryBlock& out, const MemoryBlock& in, const Dims& dims)
    : views_(out, in, dims),
      kept_("reduce", views_.in.shape, {&views_.in, &views_.out}),
      reduced_("reduce", views_.reduced.shape, {&views_.reduced}),
      each_(reduced_.inner() * reduced_.outer()) {
  const int64_t columns = kept_.inner();
  // With few columns, the loop over them costs less than calling it.
  const bool wide = columns > 1 && (columns >= kFewColumns || each_ < kFewColumns);
  by_columns_ = wide && column_stride() < reduced_.inner_stride(0);
  if (columns * kept_.outer() == 0) return;
  const int64_t rows = std::clamp<int64_t>(kRowTaskElements / std::max<int64_t>(1, each_), 1, 256);
  width_ = std::min(columns, by_columns_ ? kMaxWidth : rows);
  chunks_ = (columns + width_ - 1) / width_;
  if (tasks() >= kEnoughTasks || tasks() * task_elements() < 2 * kPartElements) return;
  parts_ = std::min((task_elements() + kPartElements - 1) / kPartElements, kMaxParts);
}

ReduceTask ReducePlan::task(int64_t task, int64_t part) const {
  const int64_t outer = task / chunks_, start = task % chunks_ * width_;
  return {kept_.offset(0, outer, start), kept_.offset(1, outer, start),
          std::min(width_, kept_.inner() - start), each_ * part / parts_,
          each_ * (part + 1) / parts_};
}

bool fill_extreme(Reduction reduction, const MemoryBlock& out, const MemoryBlock& in) {
  const bool extreme = reduction == Reduction::max || reduction == Reduction::min;
  if (in.numel() > 0 || !extreme || is_floating(out.dtype) || size_of(out.dtype) == 8) return false;
  visit(out.dtype, [&]<class T>(Type<T>) {
    using Limits = std::numeric_limits<T>;
    const T value = reduction == Reduction::min ? Limits::max() : Limits::lowest();
    if constexpr (std::is_integral_v<T>) fill(out, static_cast<int64_t>(value));
  });
  return true;
}

void check_indices(const char* what, const MemoryBlock& out) {
  if (out.dtype != DType::i32 && out.dtype != DType::i64) {
    fail(what, ": dtype of indices is ", out.dtype, ", expected i32 or i64");
  }
}

}  // namespace weft

namespace weft::host {

/// Elements loaded at a time when they are not dense C.
static constexpr int64_t kReduceBuffer = 1024;
/// Elements reduced at a time (in interleaved accumulators) when they are dense C.
static constexpr int64_t kDenseAtOnce = 4096;
/// A column sums this many rows, then this many such sums, before adding to its total.
static constexpr int64_t kRowsAtOnce = 256;

/// One reduction in one compute type.
template <class C> struct ReduceLoops {
  C identity;
  /// The reduction of n elements.
  C (*row)(const C* x, int64_t n);
  /// Combines each sums[i] with element x[i].
  void (*columns)(C* sums, const C* x, int64_t n);
  /// Combines each sums[i] with the partial reduction part[i].
  void (*merge)(C* sums, const C* part, int64_t n);
  /// `row` of 32-bit integers without conversion, where that cannot overflow; else null.
  C (*row_of_i32)(const int32_t* x, int64_t n) = nullptr;
};

template <class R, class C> static C reduced_row(const C* x, int64_t n) {
  return reduce_row<R, C>(n, AsItIs{}, x);
}

template <class R, class C> static void reduce_columns(C* sums, const C* x, int64_t n) {
  WEFT_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) sums[i] = R::combine(sums[i], R::element(x[i]));
}

template <class R, class C> static void merge_columns(C* sums, const C* part, int64_t n) {
  WEFT_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) sums[i] = R::combine(sums[i], part[i]);
}

/// The greatest or least of numbers, one comparison each. x * 0 is not 0 for NaN, which makes the
/// result NaN, and for infinities: rows with one of these take the comparisons that keep NaN.
template <class R, class C> static C extreme_row(const C* x, int64_t n) {
  constexpr int kN = 256 / static_cast<int>(sizeof(C));
  if (n < kN) return reduced_row<R, C>(x, n);
  C best[kN], zeros[kN];
  std::copy_n(x, kN, best);
  std::fill_n(zeros, kN, C(0));
  for (int64_t i = 0; i < n; i += kN) {
    // The last elements overlap those before.
    const C* from = x + std::min(i, n - kN);
    for (int l = 0; l < kN; ++l) {
      if constexpr (std::is_same_v<R, GreatestOf>) {
        best[l] = from[l] > best[l] ? from[l] : best[l];
      } else {
        best[l] = from[l] < best[l] ? from[l] : best[l];
      }
      zeros[l] += from[l] * C(0);
    }
  }
  fold_lanes<SumOf, kN / 2>(zeros);
  if (zeros[0] != C(0)) return reduced_row<R, C>(x, n);
  fold_lanes<R, kN / 2>(best);
  return best[0];
}

/// Integers are compared in one cycle, which few accumulators hide.
template <class R> struct OneCycle : R { static constexpr int kTimesLanes = 1; };

template <class R, class C> static ReduceLoops<C> loops_of() {
  ReduceLoops<C> loops{R::template identity<C>(), reduced_row<R, C>, reduce_columns<R, C>,
                       merge_columns<R, C>};
  constexpr bool kStays = std::is_same_v<R, GreatestOf> || std::is_same_v<R, LeastOf>;
  if constexpr (kStays && std::is_floating_point_v<C>) loops.row = extreme_row<R, C>;
  if constexpr (kStays && std::is_same_v<C, int64_t>) {
    loops.row_of_i32 = [](const int32_t* x, int64_t n) -> C {
      return reduce_row<OneCycle<R>, int32_t>(n, AsItIs{}, x);
    };
  }
  return loops;
}

/// Merges parts of one reduction in pairs of equally many parts, so that rounding errors of sums
/// grow with the logarithm of their number.
template <class C> class PairwiseMerge {
 public:
  explicit PairwiseMerge(const ReduceLoops<C>& loops) : loops_(loops) {}

  void add(C part) {
    size_t level = 0;
    for (uint64_t parts = count_++; parts & 1; parts >>= 1) merge(part, levels_[level++]);
    levels_[level] = part;
  }
  C total() const {
    if (count_ == 1) return levels_[0];
    C value = loops_.identity;
    for (size_t level = 0; count_ >> level; ++level) {
      if (count_ >> level & 1) merge(value, levels_[level]);
    }
    return value;
  }

 private:
  /// Keeps the order in which the parts were added.
  void merge(C& value, C before) const {
    loops_.merge(&before, &value, 1);
    value = before;
  }

  const ReduceLoops<C>& loops_;
  uint64_t count_ = 0;
  C levels_[64];
};

/// reduce_rows for dense rows that are reduced at once; returns false for others.
template <class C>
static bool reduce_dense_rows(const ReducePlan& plan, const ReduceLoops<C>& loops,
                              const ReduceTask& task, C* values) {
  const int64_t n = task.end, pitch = plan.column_stride();
  const void* first = n > 0 && n <= kDenseAtOnce ? plan.dense_row(task, 0) : nullptr;
  if (first && plan.dtype() == dtype_of<C>) {
    const auto* x = static_cast<const C*>(first);
    for (int64_t j = 0; j < task.width; ++j, x += pitch) values[j] = loops.row(x, n);
    return true;
  }
  if (!first || !loops.row_of_i32 || plan.dtype() != DType::i32) return false;
  const auto* x = static_cast<const int32_t*>(first);
  for (int64_t j = 0; j < task.width; ++j, x += pitch) values[j] = loops.row_of_i32(x, n);
  return true;
}

/// values[i] = the reduction of result i's elements in the task.
template <class C>
static void reduce_rows(const ReducePlan& plan, const ReduceLoops<C>& loops, const ReduceTask& task,
                        C* values) {
  if (reduce_dense_rows(plan, loops, task, values)) return;
  C buffer[kReduceBuffer];
  for (int64_t j = 0; j < task.width; ++j) {
    PairwiseMerge<C> merged(loops);
    plan.for_each_run(task, j, [&](Line run, int64_t length) {
      if (loops.row_of_i32 && run.dtype == DType::i32 && run.stride == 1 && length > 0) {
        return merged.add(loops.row_of_i32(static_cast<const int32_t*>(run.data), length));
      }
      const bool direct = run.dtype == dtype_of<C> && run.stride == 1;
      const int64_t at_once = direct ? kDenseAtOnce : kReduceBuffer;
      for (int64_t i = 0; i < length; i += at_once) {
        const int64_t n = std::min(at_once, length - i);
        merged.add(loops.row(dense_line(moved(run, i), n, buffer), n));
      }
    });
    values[j] = merged.total();
  }
}

/// The same when neighbours belong to different results: row by row, all columns at once.
template <class C>
static void reduce_columns_of(const ReducePlan& plan, const ReduceLoops<C>& loops,
                              const ReduceTask& task, C* values) {
  C buffer[ReducePlan::kMaxWidth], sums[ReducePlan::kMaxWidth], many[ReducePlan::kMaxWidth];
  for (C* all : {values, sums, many}) std::fill_n(all, task.width, loops.identity);
  const auto move_up = [&](C* to, C* from) {
    loops.merge(to, from, task.width);
    std::fill_n(from, task.width, loops.identity);
  };
  int64_t rows = 0;
  plan.for_each_run(task, 0, [&](Line run, int64_t length) {
    for (int64_t i = 0; i < length; ++i) {
      Line line = moved(run, i);
      line.stride = plan.column_stride();
      loops.columns(sums, dense_line(line, task.width, buffer), task.width);
      if (++rows % kRowsAtOnce != 0) continue;
      move_up(many, sums);
      if (rows % (kRowsAtOnce * kRowsAtOnce) == 0) move_up(values, many);
    }
  });
  loops.merge(many, sums, task.width);
  loops.merge(values, many, task.width);
}

template <class C>
static void store_results(const Line& out, C* values, int64_t n, double factor, bool accumulate) {
  if (factor != 1) {
    for (int64_t i = 0; i < n; ++i) {
      values[i] = static_cast<C>(static_cast<double>(values[i]) * factor);
    }
  }
  if (accumulate) {
    C before[ReducePlan::kMaxWidth];
    load_line(before, out, n);
    for (int64_t i = 0; i < n; ++i) values[i] += before[i];
  }
  store_line(out, values, n);
}

template <class C>
static void run_reduction(const ReducePlan& plan, const ReduceLoops<C>& loops, double factor,
                          bool accumulate) {
  const int64_t parts = plan.parts(), width = plan.width();
  const auto compute = [&](int64_t task, int64_t part, C* values) {
    const ReduceTask range = plan.task(task, part);
    plan.by_columns() ? reduce_columns_of(plan, loops, range, values)
                      : reduce_rows(plan, loops, range, values);
    return range;
  };
  if (parts == 1) {
    parallel_for(plan.tasks(), grain_of(plan.task_elements()), [&](int64_t begin, int64_t end) {
      C values[ReducePlan::kMaxWidth];
      for (int64_t i = begin; i < end; ++i) {
        const ReduceTask range = compute(i, 0, values);
        store_results(plan.result(range), values, range.width, factor, accumulate);
      }
    });
    return;
  }
  std::vector<C> partial(static_cast<size_t>(plan.tasks() * parts * width));
  parallel_for(plan.tasks() * parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      compute(i / parts, i % parts, &partial[static_cast<size_t>(i * width)]);
  });
  for (int64_t i = 0; i < plan.tasks(); ++i) {
    const ReduceTask range = plan.task(i, 0);
    C* first = &partial[static_cast<size_t>(i * parts * width)];
    for (int64_t part = 1; part < parts; ++part)
      loops.merge(first, first + part * width, range.width);
    store_results(plan.result(range), first, range.width, factor, accumulate);
  }
}

void reduce(Reduction reduction, const MemoryBlock& out, const MemoryBlock& in, const Dims& dims,
            double factor, bool accumulate) {
  if (fill_extreme(reduction, out, in)) return;
  if (is_complex(in.dtype) && reduction == Reduction::sum) {
    return host::reduce(reduction, parts_of(out), parts_of(in), dims, factor, accumulate);
  }
  const ReducePlan plan(out, in, dims);
  visit_compute(in.dtype, [&]<class C>(Type<C>) {
    const auto loops =
        visit_reduction(reduction, []<class R>(Type<R>) { return loops_of<R, C>(); });
    run_reduction(plan, loops, factor, accumulate);
  });
}

/// Returns the first index where x equals `value`, NaN equal to NaN; n when there is none. Works in
/// steps that vectorise.
template <class C> static int64_t first_equal(const C* x, int64_t n, C value) {
  constexpr int64_t kStep = 64;
  const bool nan = value != value;
  for (int64_t i = 0; i < n; i += kStep) {
    const int64_t end = std::min(n, i + kStep);
    int found = 0;
    for (int64_t j = i; j < end; ++j) found |= nan ? x[j] != x[j] : x[j] == value;
    if (!found) continue;
    while (nan ? x[i] == x[i] : x[i] != value) ++i;
    return i;
  }
  return n;
}

/// out = find(x, row) for each row x along `dim`.
template <class Find>
static void store_found(const char* what, const MemoryBlock& out, const MemoryBlock& in, int dim,
                        const Find& find) {
  check_indices(what, out);
  const Rows rows(in, dim), indices = Rows::values(what, out, rows);
  visit_compute(in.dtype, [&]<class C>(Type<C>) {
    parallel_for(rows.count(), grain_of(rows.size()), [&](int64_t begin, int64_t end) {
      RowReader<C> read(rows, end);
      for (int64_t r = begin; r < end; ++r) set_value<int64_t>(indices, r, find(read(r), r));
    });
  });
}

void arg_reduce(const MemoryBlock& out, const MemoryBlock& in, int dim, bool greatest) {
  const int64_t n = Rows(in, dim).size();
  store_found("arg_reduce", out, in, dim, [&]<class C>(const C* x, int64_t) {
    const C value = greatest ? reduce_row<GreatestOf, C>(n, AsItIs{}, x)
                             : reduce_row<LeastOf, C>(n, AsItIs{}, x);
    return n == 0 ? -1 : first_equal(x, n, value);
  });
}

void index_of(const MemoryBlock& out, const MemoryBlock& in, const MemoryBlock& value, int dim,
              int64_t offset) {
  const Rows rows(in, dim), values = Rows::values("index_of", value, rows);
  const int64_t n = rows.size();
  const int64_t none = out.dtype == DType::i32 ? std::numeric_limits<int32_t>::max()
                                               : std::numeric_limits<int64_t>::max();
  store_found("index_of", out, in, dim, [&]<class C>(const C* x, int64_t row) {
    const int64_t index = first_equal(x, n, value_of<C>(values, row));
    return index == n ? none : index + offset;
  });
}

}  // namespace weft::host

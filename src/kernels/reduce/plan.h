// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/kernels/iteration/iteration.h"
#include "src/kernels/math/reducers.h"
#include "src/kernels/reduce/reduce.h"
#include "weft/block.h"

namespace weft {

/// The dims of a reduction, split: views of the operand by its kept dims and by its reduced ones,
/// and of the result by its dims; checked.
struct SplitDims {
  MemoryBlock kept, result, reduced;
  SplitDims(const MemoryBlock& out, const MemoryBlock& in, const Dims& dims);
};

/// A piece of a reduction: `width` neighbouring results, the first element of each one's operand,
/// and range [begin, end) of the elements that each of them reduces.
struct ReduceTask {
  Line in, out;
  int64_t width;
  int64_t begin, end;
};

/// Splits a reduction into tasks along one dim of the results, the columns. When few results have
/// many elements each, those are also split, into `parts`. All splits depend on the shape alone.
class ReducePlan {
 public:
  static constexpr int64_t kMaxWidth = 1024;

  ReducePlan(const MemoryBlock& out, const MemoryBlock& in, const Dims& dims);
  ReducePlan(const ReducePlan&) = delete;

  /// Returns whether neighbours in memory belong to different results.
  bool by_columns() const { return by_columns_; }
  int64_t column_stride() const { return kept_.inner_stride(0); }
  int64_t width() const { return width_; }
  int64_t tasks() const { return kept_.outer() * chunks_; }
  int64_t parts() const { return parts_; }
  int64_t task_elements() const { return width_ * reduced_count_; }
  ReduceTask task(int64_t task, int64_t part) const;

  /// Calls f(line, length) on the runs, along the inner reduced dim, of the elements that result
  /// `column` of the task reduces.
  template <class F> void for_each_run(const ReduceTask& task, int64_t column, const F& f) const {
    const auto bytes = static_cast<int64_t>(size_of(task.in.dtype));
    const int64_t inner = reduced_.inner(), stride = reduced_.inner_stride(0);
    char* base = static_cast<char*>(task.in.data) + column * task.in.stride * bytes;
    for (int64_t i = task.begin; i < task.end;) {
      const int64_t line = i / inner, start = i - line * inner;
      const int64_t length = std::min(inner - start, task.end - i);
      const int64_t before = line > 0 ? bytes_before(line) : 0;
      f(Line{task.in.dtype, base + before + start * stride * bytes, stride}, length);
      i += length;
    }
  }

 private:
  /// Bytes from the first line of the reduced dims to line `line`.
  int64_t bytes_before(int64_t line) const {
    return static_cast<char*>(reduced_.line(0, line, 0).data) - dims_.reduced.as<char>();
  }

  SplitDims dims_;
  /// The loops over results: the operand, then the result. The inner one is over columns.
  Iteration kept_;
  Iteration reduced_;
  int64_t reduced_count_;
  bool by_columns_;
  int64_t width_ = 1, chunks_ = 0, parts_ = 1;
};

/// Sets `out` if it is a max or min of no integers, whose compute type has other extremes; returns
/// whether it did.
bool fill_extreme(Reduction reduction, const MemoryBlock& out, const MemoryBlock& in);

/// Calls visitor(Type<R>{}) with the functor of a reduction.
template <class Visitor> decltype(auto) visit_reduction(Reduction reduction, Visitor&& visitor) {
  switch (reduction) {
    case Reduction::sum: return visitor(Type<SumOf>{});
    case Reduction::product: return visitor(Type<ProductOf>{});
    case Reduction::max: return visitor(Type<GreatestOf>{});
    case Reduction::min: return visitor(Type<LeastOf>{});
    case Reduction::sum_squares: return visitor(Type<SquaresOf>{});
    case Reduction::sum_numbers: return visitor(Type<NumbersOf>{});
    case Reduction::any: return visitor(Type<AnyOf>{});
    default: return visitor(Type<AllOf>{});
  }
}

}  // namespace weft

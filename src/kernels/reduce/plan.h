// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/kernels/iteration/iteration.h"
#include "src/kernels/math/reducers.h"
#include "src/kernels/reduce/reduce.h"
#include "weft/export.h"

namespace weft {

/// The operands of a reduction, checked: `in` and `out` along the dims that stay, and the operand
/// along the `reduced` ones.
struct ReduceViews {
  MemoryBlock in, out, reduced;
  ReduceViews(const MemoryBlock& out_block, const MemoryBlock& in_block, const Dims& dims);
};

/// A piece of a reduction: `width` neighbouring results, and range [begin, end) of the elements
/// that each of them reduces.
struct ReduceTask {
  int64_t in_offset, out_offset;
  int64_t width;
  int64_t begin, end;
};

/// Splits a reduction into tasks along one dim of the results, the columns. When few results have
/// many elements each, those are also split, into `parts`. All splits depend on the shape alone.
class ReducePlan : NotCopied {
 public:
  static constexpr int64_t kMaxWidth = 1024;

  ReducePlan(const MemoryBlock& out, const MemoryBlock& in, const Dims& dims);

  /// Returns whether neighbours in memory belong to different results.
  bool by_columns() const { return by_columns_; }
  int64_t column_stride() const { return kept_.inner_stride(0); }
  int64_t width() const { return width_; }
  int64_t tasks() const { return kept_.outer() * chunks_; }
  int64_t parts() const { return parts_; }
  int64_t task_elements() const { return width_ * each_; }
  ReduceTask task(int64_t task, int64_t part) const;
  /// Returns the elements that result `column` of the task reduces, all of them, if they are dense.
  const void* dense_row(const ReduceTask& task, int64_t column) const {
    const bool dense = reduced_.ndim() == 1 && reduced_.inner_stride(0) == 1 && parts_ == 1;
    const int64_t offset = task.in_offset + column * column_stride();
    return dense ? element_at(views_.in.data, offset, views_.in.dtype) : nullptr;
  }
  DType dtype() const { return views_.in.dtype; }
  Line result(const ReduceTask& task) const {
    return line_at(views_.out, task.out_offset, kept_.inner_stride(1));
  }

  /// Calls f(line, length) on the runs, along the inner reduced dim, of the elements that result
  /// `column` of the task reduces.
  template <class F> void for_each_run(const ReduceTask& task, int64_t column, const F& f) const {
    const int64_t base = task.in_offset + column * column_stride(), inner = reduced_.inner();
    for (int64_t i = task.begin; i < task.end;) {
      const int64_t line = i / inner, start = i - line * inner;
      const int64_t length = std::min(inner - start, task.end - i);
      const int64_t offset = base + reduced_.offset(0, line, start);
      f(line_at(views_.in, offset, reduced_.inner_stride(0)), length);
      i += length;
    }
  }

 private:
  ReduceViews views_;
  /// The loops over the results, of operand and result, and over the elements of each.
  Iteration kept_, reduced_;
  bool by_columns_;
  int64_t each_, width_ = 1, chunks_ = 0, parts_ = 1;
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

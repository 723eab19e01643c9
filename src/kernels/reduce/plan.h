// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "src/kernels/iteration/iteration.h"
#include "src/kernels/math/reducers.h"
#include "src/kernels/reduce/reduce.h"
#include "weft/block.h"

namespace weft {

/// A piece of a reduction: `width` neighbouring results, and range [begin, end) of the elements
/// that each of them reduces.
struct ReduceTask {
  int64_t in_offset, out_offset;
  int64_t width;
  int64_t begin, end;
};

/// Splits a reduction into tasks along one dim of the results, the columns. When few results have
/// many elements each, those are also split, into `parts`. All splits depend on the shape alone.
class ReducePlan {
 public:
  static constexpr int64_t kMaxWidth = 1024;

  ReducePlan(const MemoryBlock& out, const MemoryBlock& in, const Dims& dims);

  /// Returns whether neighbours in memory belong to different results.
  bool by_columns() const { return by_columns_; }
  int64_t column_stride() const { return column_.in_stride; }
  int64_t width() const { return width_; }
  int64_t tasks() const { return kept_count_ * chunks_; }
  int64_t parts() const { return parts_; }
  int64_t task_elements() const { return width_ * reduced_count_; }
  ReduceTask task(int64_t task, int64_t part) const;
  Line result(const ReduceTask& task) const;

  /// Calls f(line, length) on the runs, along the inner reduced dim, of the elements that result
  /// `column` of the task reduces.
  template <class F> void for_each_run(const ReduceTask& task, int64_t column, const F& f) const {
    const Dim& inner = reduced_[static_cast<size_t>(reduced_dims_ - 1)];
    const int64_t base = task.in_offset + column * column_.in_stride;
    for (int64_t i = task.begin; i < task.end;) {
      const int64_t line = i / inner.size, start = i - line * inner.size;
      const int64_t length = std::min(inner.size - start, task.end - i);
      const int64_t offset = base + reduced_offset(line) + start * inner.in_stride;
      f(Line{in_.dtype, element_at(in_.data, offset, in_.dtype), inner.in_stride}, length);
      i += length;
    }
  }

 private:
  struct Dim {
    int64_t size, in_stride, out_stride;
  };
  using DimList = std::array<Dim, kMaxDims + 1>;

  static void add(DimList& list, int& count, const Dim& dim);
  static void merge(DimList& list, int& count);
  void collect(const Dims& dims);
  void choose_columns();
  void cut();
  /// Offset of line `line` of the reduced dims except the inner one.
  int64_t reduced_offset(int64_t line) const;

  const MemoryBlock &out_, &in_;
  DimList kept_, reduced_;
  int kept_dims_ = 0, reduced_dims_ = 0;
  Dim column_{1, 1, 1};
  bool by_columns_ = false;
  int64_t kept_count_ = 1, reduced_count_ = 1;
  int64_t width_ = 1, chunks_ = 1, parts_ = 1;
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

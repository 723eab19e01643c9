// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/reduce/plan.h"

#include "src/kernels/copy/copy.h"
#include "weft/error.h"

namespace weft {

/// Elements of a part; the number of tasks from which on there are no parts; most parts.
static constexpr int64_t kPartElements = 65536, kEnoughTasks = 32, kMaxParts = 64;
/// Elements of a task by rows.
static constexpr int64_t kRowTaskElements = 16384;
static constexpr int64_t kFewColumns = 8;

ReducePlan::ReducePlan(const MemoryBlock& out, const MemoryBlock& in, const Dims& dims)
    : out_(out), in_(in) {
  collect(dims);
  merge(kept_, kept_dims_);
  merge(reduced_, reduced_dims_);
  choose_columns();
  cut();
}

/// Keeps the operand's strides falling from outer to inner.
void ReducePlan::add(DimList& list, int& count, const Dim& dim) {
  int i = count++;
  for (; i > 0 && list[static_cast<size_t>(i - 1)].in_stride < dim.in_stride; --i) {
    list[static_cast<size_t>(i)] = list[static_cast<size_t>(i - 1)];
  }
  list[static_cast<size_t>(i)] = dim;
}

void ReducePlan::merge(DimList& list, int& count) {
  int last = 0;
  for (int i = 1; i < count; ++i) {
    Dim& outer = list[static_cast<size_t>(last)];
    const Dim& inner = list[static_cast<size_t>(i)];
    if (outer.in_stride == inner.in_stride * inner.size &&
        outer.out_stride == inner.out_stride * inner.size) {
      outer = {outer.size * inner.size, inner.in_stride, inner.out_stride};
    } else {
      list[static_cast<size_t>(++last)] = inner;
    }
  }
  if (count > 0) count = last + 1;
}

void ReducePlan::collect(const Dims& dims) {
  uint32_t is_reduced = 0;
  for (int64_t dim : dims) is_reduced |= 1u << dim;
  const int ndim = in_.shape.ndim();
  const bool keeps = out_.shape.ndim() == ndim;
  if (!keeps && out_.shape.ndim() != ndim - dims.ndim()) {
    fail("reduce: result is ", out_.shape, ", expected that of ", in_.shape, " over dims ", dims);
  }
  for (int i = 0, o = 0; i < ndim; ++i) {
    const bool reduced = is_reduced >> i & 1u;
    const int64_t size = in_.shape[i];
    if (reduced) {
      if (size != 1) add(reduced_, reduced_dims_, {size, in_.strides[i], 0});
      reduced_count_ *= size;
    } else if (out_.shape[o] != size) {
      fail("reduce: result is ", out_.shape, ", expected that of ", in_.shape, " over dims ", dims);
    } else if (size != 1) {
      add(kept_, kept_dims_, {size, in_.strides[i], out_.strides[o]});
    }
    if (!reduced || keeps) ++o;
  }
  if (reduced_dims_ == 0) add(reduced_, reduced_dims_, {1, 1, 0});
}

void ReducePlan::choose_columns() {
  if (kept_dims_ == 0) return;
  column_ = kept_[static_cast<size_t>(--kept_dims_)];
  // With few columns, the loop over them costs less than calling it.
  const bool wide = column_.size >= kFewColumns || reduced_count_ < kFewColumns;
  by_columns_ =
      wide && column_.in_stride < reduced_[static_cast<size_t>(reduced_dims_ - 1)].in_stride;
  for (int i = 0; i < kept_dims_; ++i) kept_count_ *= kept_[static_cast<size_t>(i)].size;
}

void ReducePlan::cut() {
  if (column_.size * kept_count_ == 0) {
    kept_count_ = 0;
    return;
  }
  const int64_t rows =
      std::clamp<int64_t>(kRowTaskElements / std::max<int64_t>(1, reduced_count_), 1, 256);
  width_ = std::min(column_.size, by_columns_ ? kMaxWidth : rows);
  chunks_ = (column_.size + width_ - 1) / width_;
  if (tasks() >= kEnoughTasks || tasks() * task_elements() < 2 * kPartElements) return;
  parts_ = std::min((task_elements() + kPartElements - 1) / kPartElements, kMaxParts);
}

ReduceTask ReducePlan::task(int64_t task, int64_t part) const {
  int64_t outer = task / chunks_;
  const int64_t start = task % chunks_ * width_;
  ReduceTask result{start * column_.in_stride, start * column_.out_stride,
                    std::min(width_, column_.size - start), reduced_count_ * part / parts_,
                    reduced_count_ * (part + 1) / parts_};
  for (int i = kept_dims_ - 1; i >= 0; --i) {
    const Dim& dim = kept_[static_cast<size_t>(i)];
    result.in_offset += outer % dim.size * dim.in_stride;
    result.out_offset += outer % dim.size * dim.out_stride;
    outer /= dim.size;
  }
  return result;
}

Line ReducePlan::result(const ReduceTask& task) const {
  return {out_.dtype, element_at(out_.data, task.out_offset, out_.dtype), column_.out_stride};
}

int64_t ReducePlan::reduced_offset(int64_t line) const {
  int64_t offset = 0;
  for (int i = reduced_dims_ - 2; i >= 0; --i) {
    const Dim& dim = reduced_[static_cast<size_t>(i)];
    offset += line % dim.size * dim.in_stride;
    line /= dim.size;
  }
  return offset;
}

/// Returns the lowest or greatest value of a dtype of up to 32 bits: the max or min of no elements.
static int64_t extreme_of(DType dtype, bool greatest) {
  if (dtype == DType::boolean) return greatest ? 1 : 0;
  const int64_t values = int64_t{1} << 8 * size_of(dtype);
  const int64_t least = is_unsigned(dtype) ? 0 : -values / 2;
  return greatest ? least + values - 1 : least;
}

bool fill_extreme(Reduction reduction, const MemoryBlock& out, const MemoryBlock& in) {
  const bool extreme = reduction == Reduction::max || reduction == Reduction::min;
  if (in.numel() > 0 || !extreme || is_floating(out.dtype) || size_of(out.dtype) == 8) return false;
  fill(out, extreme_of(out.dtype, reduction == Reduction::min));
  return true;
}

void check_indices(const char* what, const MemoryBlock& out) {
  if (out.dtype != DType::i32 && out.dtype != DType::i64) {
    fail(what, ": dtype of indices is ", out.dtype, ", expected i32 or i64");
  }
}

}  // namespace weft

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

SplitDims::SplitDims(const MemoryBlock& out, const MemoryBlock& in, const Dims& dims)
    : kept{in.data, in.dtype, in.device, {}, {}},
      result{out.data, out.dtype, out.device, {}, {}},
      reduced{kept} {
  uint32_t is_reduced = 0;
  for (int64_t dim : dims) is_reduced |= 1u << dim;
  const int ndim = in.shape.ndim();
  const bool keeps = out.shape.ndim() == ndim;
  bool fits = keeps || out.shape.ndim() == ndim - dims.ndim();
  for (int i = 0, o = 0; i < ndim && fits; ++i) {
    const bool here = is_reduced >> i & 1u;
    MemoryBlock& part = here ? reduced : kept;
    part.shape.push_back(in.shape[i]);
    part.strides.push_back(in.strides[i]);
    if (!here) {
      fits = out.shape[o] == in.shape[i];
      result.strides.push_back(out.strides[o]);
    }
    if (!here || keeps) ++o;
  }
  if (!fits) {
    fail("reduce: result is ", out.shape, ", expected that of ", in.shape, " over dims ", dims);
  }
  result.shape = kept.shape;
}

static Iteration loops_over(std::initializer_list<const MemoryBlock*> blocks) {
  return {"reduce", (*blocks.begin())->shape, blocks.begin(), static_cast<int>(blocks.size())};
}

ReducePlan::ReducePlan(const MemoryBlock& out, const MemoryBlock& in, const Dims& dims)
    : dims_(out, in, dims),
      kept_(loops_over({&dims_.kept, &dims_.result})),
      reduced_(loops_over({&dims_.reduced})),
      reduced_count_(dims_.reduced.numel()) {
  const int64_t columns = kept_.inner();
  // With few columns, the loop over them costs less than calling it.
  const bool wide = columns >= kFewColumns || reduced_count_ < kFewColumns;
  by_columns_ = columns != 1 && wide && column_stride() < reduced_.inner_stride(0);
  if (columns * kept_.outer() == 0) return;
  const int64_t rows =
      std::clamp<int64_t>(kRowTaskElements / std::max<int64_t>(1, reduced_count_), 1, 256);
  width_ = std::min(columns, by_columns_ ? kMaxWidth : rows);
  chunks_ = (columns + width_ - 1) / width_;
  if (tasks() >= kEnoughTasks || tasks() * task_elements() < 2 * kPartElements) return;
  parts_ = std::min((task_elements() + kPartElements - 1) / kPartElements, kMaxParts);
}

ReduceTask ReducePlan::task(int64_t task, int64_t part) const {
  const int64_t outer = task / chunks_, start = task % chunks_ * width_;
  return {kept_.line(0, outer, start), kept_.line(1, outer, start),
          std::min(width_, kept_.inner() - start), reduced_count_ * part / parts_,
          reduced_count_ * (part + 1) / parts_};
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

}  // namespace weft

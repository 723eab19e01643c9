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

// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/rows/rows.h"

#include "weft/error.h"

#ifdef WEFT_WITH_CUDA
#include "src/device/cuda/runtime.h"
#include "src/kernels/kernel.h"
#include "src/kernels/rows/device_rows.h"
#endif

namespace weft {

Rows::Rows(const MemoryBlock& block, int dim) : data_(block.as<char>()), dtype_(block.dtype) {
  int last = -1;
  for (int i = 0; i < block.shape.ndim(); ++i) {
    if (i == dim) {
      size_ = block.shape[i];
      stride_ = block.shape[i] == 1 ? 1 : block.strides[i];
      continue;
    }
    count_ *= block.shape[i];
    if (block.shape[i] == 1) continue;
    const bool one_run = last >= 0 && strides_[last] == block.strides[i] * block.shape[i];
    if (!one_run) sizes_[++last] = 1;
    sizes_[last] *= block.shape[i];
    strides_[last] = block.strides[i];
  }
  ndim_ = last < 0 ? 1 : last + 1;
}

Rows Rows::values(const char* what, const MemoryBlock& block, const Rows& rows) {
  Rows values(block, -1);
  if (values.count_ == 1 && rows.count_ != 1) {
    values.count_ = rows.count_;
    values.strides_[0] = 0;
  }
  if (values.count_ != rows.count_) {
    fail(what, ": values are ", block.shape, ", expected one for each of ", rows.count_, " rows");
  }
  return values;
}

void check_runs_on_cpu(const char* what, Device device) {
  if (device.kind == DeviceKind::cpu) return;
  fail(what, ": its kernel was compiled for the CPU alone, expected its file in weft_cuda_sources");
}

void check_rows(const char* what, const Rows& a, const Rows& b) {
  if (a.count() != b.count() || a.size() != b.size()) {
    fail(what, ": rows are ", b.count(), " of ", b.size(), ", expected ", a.count(), " of ",
         a.size());
  }
}

}  // namespace weft

#ifdef WEFT_WITH_CUDA
namespace weft::cuda {

/// Shared memory of a thread block that is kept for its reductions; the rest may hold rows.
static constexpr size_t kForReductions = size_t{35} << 10;
/// Bytes of rows that every GPU's blocks can hold, so that the driver is not asked for most rows.
static constexpr size_t kSurelyHeld = size_t{12} << 10;
static constexpr int64_t kMostRowBlocks = int64_t{1} << 20;

/// Returns whether the rows can be read 16 bytes at a time.
static bool has_vectors(const Rows& rows, DType dtype, int64_t size) {
  if (!rows.data()) return true;
  const int64_t elements = kVectorBytes / static_cast<int64_t>(size_of(dtype));
  return rows.dtype() == dtype && rows.stride() == 1 && is_aligned(rows.data()) &&
         size % elements == 0 && rows.starts_at_multiples_of(elements);
}

/// Dtypes that kernels read 16 bytes at a time.
static bool comes_in_vectors(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

RowPlan plan_rows(const char* what, Device device, int64_t count, int64_t size,
                  const RowOperands& operands) {
  const DType dtype = (*operands.rows.begin())->dtype();
  visit_compute_floating(what, dtype, [](auto) {});
  bool dense = comes_in_vectors(dtype);
  for (const Rows* rows : operands.rows) dense = dense && has_vectors(*rows, dtype, size);
  for (const Rows* vector : operands.vectors) {
    const bool is_dense =
        comes_in_vectors(vector->dtype()) && vector->stride() == 1 && is_aligned(vector->data());
    dense = dense && (!vector->data() || is_dense);
  }
  RowPlan plan{count, size, dense, dense ? dtype : compute_dtype(dtype), 128, 0, 0, {}};
  const int64_t chunks = size * static_cast<int64_t>(size_of(dtype)) / kVectorBytes;
  if (dense && chunks <= 64) plan.threads = 32;
  if (dense && chunks > 512) plan.threads = 512;
  const size_t element = static_cast<size_t>(operands.held) * size_of(plan.dtype) +
                         static_cast<size_t>(operands.sums) * size_of(compute_dtype(dtype));
  const size_t bytes = element * static_cast<size_t>(size);
  const bool fits = bytes <= kSurelyHeld || bytes + kForReductions <= block_memory(device.index);
  plan.held_bytes = fits ? bytes : 0;
  plan.blocks = std::min(count, kMostRowBlocks);
  plan.stream = current_stream(device);
  return plan;
}

}  // namespace weft::cuda
#endif

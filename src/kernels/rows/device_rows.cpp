// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/rows/device_rows.h"

#include "src/device/cuda/runtime.h"
#include "src/kernels/kernel.h"

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

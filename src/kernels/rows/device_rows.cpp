// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/rows/device_rows.h"

namespace weft::cuda {

/// Shared memory of an SM that a thread block may use for rows; the rest is for its reductions.
static constexpr size_t kMostHeld = size_t{192} << 10;
static constexpr int64_t kMostRowTeams = int64_t{1} << 20;

RowSide value_side(const char* what, const Block& block, const Rows& rows) {
  Rows::values(what, block, rows);
  return RowSide(block, block.shape.ndim());
}

static bool is_aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % kVectorBytes == 0;
}

/// Returns whether the rows can be read 16 bytes at a time.
static bool has_vectors(const RowSide& side, DType dtype, int64_t size) {
  if (!side.data) return true;
  const auto bytes = static_cast<int64_t>(size_of(dtype));
  bool whole = side.dtype == dtype && (side.stride == 1 || size == 1) && is_aligned(side.data) &&
               size * bytes % kVectorBytes == 0;
  for (int d = 0; d < side.others.ndim; ++d) {
    whole &= side.others.strides[0][d] * bytes % kVectorBytes == 0;
  }
  return whole;
}

/// Dtypes that kernels read 16 bytes at a time.
static bool comes_in_vectors(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

RowPlan plan_rows(const char* what, Device device, int64_t count, int64_t size,
                  std::initializer_list<const RowSide*> rows,
                  std::initializer_list<const RowSide*> vectors, int held) {
  const DType dtype = (*rows.begin())->dtype;
  visit_compute_floating(what, dtype, [](auto) {});
  bool dense = comes_in_vectors(dtype);
  for (const RowSide* side : rows) dense = dense && has_vectors(*side, dtype, size);
  for (const RowSide* side : vectors) {
    const bool is_dense =
        comes_in_vectors(side->dtype) && side->stride == 1 && is_aligned(side->data);
    dense = dense && (!side->data || is_dense);
  }
  RowPlan plan{count, size, dense, dense ? dtype : compute_dtype(dtype), 128, 0, 0, {}};
  const int64_t chunks = size * static_cast<int64_t>(size_of(dtype)) / kVectorBytes;
  if (dense && chunks <= 64) plan.threads = 32;
  if (dense && chunks > 512) plan.threads = 512;
  const size_t bytes =
      static_cast<size_t>(held) * static_cast<size_t>(size) * size_of(compute_dtype(dtype));
  plan.held_bytes = bytes <= kMostHeld ? bytes : 0;
  plan.teams = std::min(count, kMostRowTeams);
  plan.stream = current_stream(device);
  return plan;
}

}  // namespace weft::cuda

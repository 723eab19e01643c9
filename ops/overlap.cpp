// SPDX-License-Identifier: Apache-2.0
#include "ops/overlap.h"

#include "src/kernels/copy.h"
#include "weft/ops/factories.h"

namespace weft {

namespace {

/// The bytes from the first element to the end of the last one.
struct Extent {
  explicit Extent(const Block& block)
      : begin(reinterpret_cast<uintptr_t>(block.data)), end(begin + size_of(block.dtype)) {
    for (int d = 0; d < block.shape.ndim(); ++d) {
      end += static_cast<size_t>((block.shape[d] - 1) * block.strides[d]) * size_of(block.dtype);
    }
  }
  uintptr_t begin;
  uintptr_t end;
};

}  // namespace

static bool is_same_place(const Block& a, const Block& b) {
  if (a.data != b.data || a.dtype != b.dtype || !(a.shape == b.shape)) return false;
  for (int d = 0; d < a.shape.ndim(); ++d) {
    if (a.shape[d] != 1 && a.strides[d] != b.strides[d]) return false;
  }
  return true;
}

bool is_disturbed(const Block& read, const Block& written) {
  if (!read.data || !written.data || read.numel() == 0 || written.numel() == 0) return false;
  const Extent a(read), b(written);
  return a.begin < b.end && b.begin < a.end && !is_same_place(read, written);
}

Tensor snapshot_of(const Block& block) {
  Tensor made = empty(block.shape, {.dtype = block.dtype, .device = block.device});
  copy(made.block(), block);
  return made;
}

}  // namespace weft

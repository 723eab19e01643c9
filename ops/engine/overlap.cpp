// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/tensor_body.h"

#include <numeric>

#include "src/kernels/copy/copy.h"
#include "weft/ops/factories.h"

namespace weft {

namespace {

/// The bytes from the first element to the end of the last one.
struct Extent {
  explicit Extent(const MemoryBlock& block)
      : begin(reinterpret_cast<uintptr_t>(block.data)), end(begin + size_of(block.dtype)) {
    for (int d = 0; d < block.shape.ndim(); ++d) {
      end += static_cast<size_t>((block.shape[d] - 1) * block.strides[d]) * size_of(block.dtype);
    }
  }
  uintptr_t begin;
  uintptr_t end;
};

}  // namespace

static bool is_same_place(const MemoryBlock& a, const MemoryBlock& b) {
  if (a.data != b.data || a.dtype != b.dtype || !(a.shape == b.shape)) return false;
  for (int d = 0; d < a.shape.ndim(); ++d) {
    if (a.shape[d] != 1 && a.strides[d] != b.strides[d]) return false;
  }
  return true;
}

static int64_t bytes_of_step(const MemoryBlock& block, int dim) {
  return block.strides[dim] * static_cast<int64_t>(size_of(block.dtype));
}

/// True if the elements lie between each other, as two columns of a matrix do: all steps are
/// multiples of a distance within which the elements of both have separate places.
static bool are_interleaved(const MemoryBlock& a, const MemoryBlock& b) {
  int64_t distance = 0;
  for (const MemoryBlock* block : {&a, &b}) {
    for (int d = 0; d < block->shape.ndim(); ++d) {
      if (block->shape[d] != 1) distance = std::gcd(distance, bytes_of_step(*block, d));
    }
  }
  if (distance == 0) return false;
  const auto between = static_cast<int64_t>(reinterpret_cast<uintptr_t>(b.data) -
                                            reinterpret_cast<uintptr_t>(a.data));
  const int64_t place = (between % distance + distance) % distance;
  return place >= static_cast<int64_t>(size_of(a.dtype)) &&
         place + static_cast<int64_t>(size_of(b.dtype)) <= distance;
}

bool is_disturbed(const MemoryBlock& read, const MemoryBlock& written) {
  if (!read.data || !written.data || read.numel() == 0 || written.numel() == 0) return false;
  const Extent a(read), b(written);
  return a.begin < b.end && b.begin < a.end && !is_same_place(read, written) &&
         !are_interleaved(read, written);
}

Tensor snapshot_of(const MemoryBlock& block) {
  Tensor made = empty(block.shape, {.dtype = block.dtype, .device = block.device});
  copy(made.block(), block);
  return made;
}

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "src/device/cuda/runtime.h"
#include "weft/block.h"

namespace weft {

/// True when an argument of a kernel is on a GPU. Arguments that are no blocks do not count.
inline bool is_on_gpu(const MemoryBlock& block) { return cuda::on_cuda(block); }
inline bool is_on_gpu(Device device) { return device.kind == DeviceKind::cuda; }
template <class Other> constexpr bool is_on_gpu(const Other&) { return false; }
template <class... Arguments> bool are_on_gpu(const Arguments&... arguments) {
  return (is_on_gpu(arguments) || ...);
}

/// True when memory can be read 16 bytes at a time.
inline bool is_aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

/// Returns `block` with two dims exchanged.
inline MemoryBlock exchanged(MemoryBlock block, int a, int b) {
  std::swap(block.shape[a], block.shape[b]);
  std::swap(block.strides[a], block.strides[b]);
  return block;
}

/// Returns a block of matrices with their rows and columns exchanged.
inline MemoryBlock transposed(const MemoryBlock& block) {
  return exchanged(block, block.shape.ndim() - 2, block.shape.ndim() - 1);
}

/// A complex block as a real one: its real and imaginary parts in a new last dim.
inline MemoryBlock parts_of(MemoryBlock block) {
  for (int64_t& stride : block.strides) stride *= 2;
  block.shape.push_back(2);
  block.strides.push_back(1);
  block.dtype = real_dtype(block.dtype);
  return block;
}

/// The real parts of a complex block, or the imaginary ones.
inline MemoryBlock part_of(const MemoryBlock& block, bool imaginary) {
  MemoryBlock part = parts_of(block);
  part.shape.erase(part.shape.ndim() - 1);
  part.strides.erase(part.strides.ndim() - 1);
  if (imaginary) part.data = static_cast<char*>(part.data) + size_of(part.dtype);
  return part;
}

}  // namespace weft

/// Declares a host function with one implementation per device, `host::name` and `cuda::name`.
/// `name` calls `cuda::name` if a MemoryBlock or Device among its arguments is on a GPU; blocks in
/// structs do not count unless `is_on_gpu` is overloaded for the struct. For use in namespace weft.
/// Most kernels choose the device here, in `run_rows` or in `run_row_values`.
#define WEFT_KERNEL(Result, name, parameters, arguments)                      \
  namespace host {                                                            \
  Result name parameters;                                                     \
  }                                                                           \
  namespace cuda {                                                            \
  Result name parameters;                                                     \
  }                                                                           \
  inline Result name parameters {                                             \
    if (cuda::kWithCuda && are_on_gpu arguments) return cuda::name arguments; \
    return host::name arguments;                                              \
  }

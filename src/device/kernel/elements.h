// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/base/numeric.h"
#include "weft/block.h"

namespace weft {

// Elements of any dtype. The dtype is uniform over a kernel, so warps do not diverge.

inline namespace WEFT_COMPILER {

/// Returns element i of `data`, as C.
template <class C> WEFT_FN C load_element(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::f32: return static_cast<C>(static_cast<const float*>(data)[i]);
    case DType::bf16:
      return static_cast<C>(static_cast<float>(static_cast<const bfloat16*>(data)[i]));
    case DType::f16:
      return static_cast<C>(static_cast<float>(static_cast<const float16*>(data)[i]));
    case DType::f64: return static_cast<C>(static_cast<const double*>(data)[i]);
    case DType::i32: return static_cast<C>(static_cast<const int32_t*>(data)[i]);
    case DType::i64: return static_cast<C>(static_cast<const int64_t*>(data)[i]);
    case DType::u8: return static_cast<C>(static_cast<const uint8_t*>(data)[i]);
    case DType::i8: return static_cast<C>(static_cast<const int8_t*>(data)[i]);
    case DType::i16: return static_cast<C>(static_cast<const int16_t*>(data)[i]);
    case DType::u16: return static_cast<C>(static_cast<const uint16_t*>(data)[i]);
    case DType::u32: return static_cast<C>(static_cast<const uint32_t*>(data)[i]);
    case DType::u64: return static_cast<C>(static_cast<const uint64_t*>(data)[i]);
    case DType::f8_e4m3:
      return static_cast<C>(static_cast<float>(static_cast<const float8_e4m3*>(data)[i]));
    case DType::f8_e5m2:
      return static_cast<C>(static_cast<float>(static_cast<const float8_e5m2*>(data)[i]));
    default: return static_cast<C>(static_cast<const bool*>(data)[i] ? 1 : 0);
  }
}

/// Sets element i of `data` to value, converted: floats to integers by truncation, to bool by "is
/// not zero".
template <class C> WEFT_FN void store_element(void* data, DType dtype, int64_t i, C value) {
  switch (dtype) {
    case DType::f32: static_cast<float*>(data)[i] = static_cast<float>(value); break;
    case DType::bf16: static_cast<bfloat16*>(data)[i] = bfloat16(before_half(value)); break;
    case DType::f16: static_cast<float16*>(data)[i] = float16(before_half(value)); break;
    case DType::f64: static_cast<double*>(data)[i] = static_cast<double>(value); break;
    case DType::i32: static_cast<int32_t*>(data)[i] = truncated<int32_t>(value); break;
    case DType::i64: static_cast<int64_t*>(data)[i] = truncated<int64_t>(value); break;
    case DType::u8: static_cast<uint8_t*>(data)[i] = truncated<uint8_t>(value); break;
    case DType::i8: static_cast<int8_t*>(data)[i] = truncated<int8_t>(value); break;
    case DType::i16: static_cast<int16_t*>(data)[i] = truncated<int16_t>(value); break;
    case DType::u16: static_cast<uint16_t*>(data)[i] = truncated<uint16_t>(value); break;
    case DType::u32: static_cast<uint32_t*>(data)[i] = truncated<uint32_t>(value); break;
    case DType::u64: static_cast<uint64_t*>(data)[i] = truncated<uint64_t>(value); break;
    case DType::f8_e4m3:
      static_cast<float8_e4m3*>(data)[i] = float8_e4m3(before_half(value));
      break;
    case DType::f8_e5m2:
      static_cast<float8_e5m2*>(data)[i] = float8_e5m2(before_half(value));
      break;
    default: static_cast<bool*>(data)[i] = value != C(0);
  }
}

}  // namespace WEFT_COMPILER
}  // namespace weft

namespace weft::cuda {

/// Elements that a thread reads or writes at once.
template <class T, int kN> struct alignas(kN * sizeof(T) < 16 ? kN * sizeof(T) : 16) Chunk {
  T element[kN];
};

/// Offsets of an element in each of up to kSides blocks of one shape.
template <int kSides> struct Offsets { int64_t of[kSides]; };

/// Sizes and strides of a loop nest.
template <int kSides> struct Nest {
  int ndim = 0;
  int64_t sizes[kMaxDims];
  int64_t strides[kSides][kMaxDims];

  WEFT_FN int64_t count() const {
    int64_t product = 1;
    for (int d = 0; d < ndim; ++d) product *= sizes[d];
    return product;
  }
  /// Returns the offsets of element `index` in row-major order.
  WEFT_FN Offsets<kSides> offsets(int64_t index) const {
    Offsets<kSides> result;
    for (int s = 0; s < kSides; ++s) result.of[s] = 0;
    for (int d = ndim - 1; d > 0; --d) {
      const int64_t next = index / sizes[d], at = index - next * sizes[d];
      for (int s = 0; s < kSides; ++s) result.of[s] += at * strides[s][d];
      index = next;
    }
    if (ndim > 0) {
      for (int s = 0; s < kSides; ++s) result.of[s] += index * strides[s][0];
    }
    return result;
  }
};

/// The nest of the elements of blocks of one shape in row-major order.
template <class... Others>
Nest<1 + sizeof...(Others)> nest_of(const MemoryBlock& block, const Others&... others) {
  Nest<1 + sizeof...(Others)> nest;
  nest.ndim = block.shape.ndim();
  std::copy(block.shape.begin(), block.shape.end(), nest.sizes);
  int side = 0;
  for (const MemoryBlock* each : {&block, &others...}) {
    std::copy(each->strides.begin(), each->strides.end(), nest.strides[side++]);
  }
  return nest;
}

}  // namespace weft::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/device/kernel/elements.h"
#include "src/kernels/attention/call.h"

namespace weft::cuda {

/// Consecutive queries or keys of a head, which a thread block computes.
struct Strip {
  int64_t batch, head, first, count;
};

/// Returns the queries of a thread block. Tiles with many keys come first.
WEFT_FN inline Strip query_strip(const AttentionSizes& call, int64_t tiles, int64_t tile_size,
                                 int64_t block) {
  const int64_t heads = call.batch * call.heads, tile = tiles - 1 - block / heads;
  const int64_t first = tile * tile_size, left = call.queries - first;
  return {block % heads / call.heads, block % call.heads, first,
          left < tile_size ? left : tile_size};
}

/// [batch, heads, sequence, width], any strides, but dense along the last dim.
struct AttentionSide {
  void* data;
  DType dtype;
  int64_t batch, head, row;
  /// True when elements can be read four at a time, starting at every fourth.
  bool by_four;

  AttentionSide(const MemoryBlock& block)  // NOLINT(google-explicit-constructor)
      : data(block.data),
        dtype(block.dtype),
        batch(block.strides[0]),
        head(block.strides[1]),
        row(block.strides[2]) {
    const bool even = batch % 4 == 0 && head % 4 == 0 && row % 4 == 0 && block.shape[3] % 4 == 0;
    by_four = even && is_aligned(data);
  }
  WEFT_FN int64_t at(int64_t b, int64_t h, int64_t r) const {
    return b * batch + h * head + r * row;
  }
};

/// The queries' logsumexp, [batch, heads, sequence].
template <class C> struct LseSide {
  C* data;
  int64_t batch, head, row;

  LseSide(const MemoryBlock& block)  // NOLINT(google-explicit-constructor)
      : data(block.as<C>()), batch(0), head(0), row(0) {
    if (!data) return;
    batch = block.strides[0], head = block.strides[1], row = block.strides[2];
  }
  WEFT_FN C& of(int64_t b, int64_t h, int64_t r) const {
    return data[b * batch + h * head + r * row];
  }
};

inline namespace WEFT_COMPILER {

template <class T> using Four = Chunk<T, 4>;

template <class C, class T> WEFT_FN Four<C> load_four_of(const void* data, int64_t i) {
  const auto packed = *reinterpret_cast<const Four<T>*>(static_cast<const T*>(data) + i);
  Four<C> four;
  for (int j = 0; j < 4; ++j) four.element[j] = static_cast<C>(packed.element[j]);
  return four;
}

/// Loads elements i .. i + 3 of floating `data`, aligned.
template <class C> WEFT_FN Four<C> load_four(const void* data, DType dtype, int64_t i) {
  if constexpr (std::is_same_v<C, double>) {
    return load_four_of<C, double>(data, i);
  } else {
    if (dtype == DType::f32) return load_four_of<C, float>(data, i);
    if (dtype == DType::bf16) return load_four_of<C, bfloat16>(data, i);
    return load_four_of<C, float16>(data, i);
  }
}

/// Stores an element of type C, or of a half dtype when C is float.
template <class C> WEFT_FN void store_result(void* data, DType dtype, int64_t i, C value) {
  if constexpr (std::is_same_v<C, double>) {
    static_cast<double*>(data)[i] = value;
  } else {
    if (dtype == DType::f32) {
      static_cast<float*>(data)[i] = value;
    } else if (dtype == DType::bf16) {
      static_cast<bfloat16*>(data)[i] = bfloat16(value);
    } else {
      static_cast<float16*>(data)[i] = float16(value);
    }
  }
}

}  // namespace WEFT_COMPILER
}  // namespace weft::cuda

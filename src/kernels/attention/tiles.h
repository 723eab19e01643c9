// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "src/kernels/attention/call.h"
#include "src/kernels/matmul/product.h"

namespace weft {

/// Calls f(first, count) for each tile with keys from `begin`, a whole step, to `seen`, rounded up
/// to whole steps. A tile does not cross a multiple of kTileKeys.
template <class F> void for_key_tiles(int64_t begin, int64_t seen, const F& f) {
  for (int64_t first = begin; first < seen;) {
    const int64_t end = (first / kTileKeys + 1) * kTileKeys;
    f(first, std::min(end, whole_steps(seen)) - first);
    first = end;
  }
}

/// c = a @ b + beta * c; rows of a are `a_row` elements apart, rows of b and c are dense. E, the
/// operands' type, is T or bf16.
template <class E, class T>
void multiply_tiles(int64_t m, int64_t n, int64_t k, E* a, int64_t a_row, E* b, T* c, float beta) {
  multiply({.m = m,
            .n = n,
            .k = k,
            .a = {a, dtype_of<E>, a_row, 1},
            .b = {b, dtype_of<E>, n, 1},
            .c = {c, dtype_of<T>, n, 1},
            .beta = beta});
}

/// The factor applied to queries when they are packed, and the one applied to scores later: in bf16
/// the scaled queries would be rounded.
template <class T, class E> double packed_scale(const AttentionSizes& sizes) {
  return std::is_same_v<T, E> ? sizes.scale : 1;
}
template <class T, class E> T missing_scale(const AttentionSizes& sizes) {
  return std::is_same_v<T, E> ? T(1) : static_cast<T>(sizes.scale);
}

/// Splits a thread's memory into parts, each aligned to cache lines.
class Carver {
 public:
  explicit Carver(void* memory = nullptr) : at_(reinterpret_cast<uintptr_t>(memory)) {}
  template <class X> X* take(int64_t count) {
    auto* part = reinterpret_cast<X*>(at_);
    at_ += (static_cast<size_t>(count) * sizeof(X) + 63) / 64 * 64;
    return part;
  }
  /// Counts the bytes needed, before there is memory.
  size_t taken() const { return at_; }

 private:
  uintptr_t at_;
};

/// Returns the matrix [sequence, width] of a batch element and head, from position `first` on.
inline Matrix head_matrix(const MemoryBlock& x, int64_t batch, int64_t head, int64_t first = 0) {
  const int64_t offset = batch * x.strides[0] + head * x.strides[1] + first * x.strides[2];
  return {element_at(x.data, offset, x.dtype), x.dtype, x.strides[2], x.strides[3]};
}

/// The element of a query in `lse`, [batch, heads, sequence].
template <class T> T& lse_of(const MemoryBlock& lse, int64_t batch, int64_t head, int64_t query) {
  return lse.as<T>()[batch * lse.strides[0] + head * lse.strides[1] + query * lse.strides[2]];
}

/// Calls f(matrix [count, width], first row of the block) for each head of the group.
template <class F> void for_group(const QueryBlock& block, const MemoryBlock& x, const F& f) {
  for (int64_t row = 0; row < block.rows; row += block.count) {
    f(head_matrix(x, block.batch, block.head(row), block.first), row);
  }
}

/// Packs the queries of a block (or an array of their shape) as the columns of `to` [width, rows].
template <class T>
void pack_query_columns(const QueryBlock& block, const MemoryBlock& x, T* to, double factor = 1) {
  for_group(block, x, [&](const Matrix& from, int64_t row) {
    copy_matrix(from, block.count, block.sizes.width, {to + row, dtype_of<T>, 1, block.rows},
                factor);
  });
}

/// Packs keys or values as rows, [packed keys, width], followed by zero rows, which contribute
/// nothing.
template <class T> void pack_key_rows(const AttentionSizes& sizes, const Matrix& x, T* to) {
  const int64_t packed = sizes.packed_keys(), there = std::min(packed, sizes.keys);
  copy_matrix(x, there, sizes.width, {to, dtype_of<T>, sizes.width, 1});
  std::fill(to + there * sizes.width, to + packed * sizes.width, T(0.0f));
}

/// Packs keys or values as columns, tile after tile, each [width, keys of the tile]; zero beyond
/// the last key.
template <class T> void pack_key_columns(const AttentionSizes& sizes, const Matrix& x, T* to) {
  for_key_tiles(0, sizes.packed_keys(), [&](int64_t first, int64_t count) {
    T* columns = to + first * sizes.width;
    const int64_t there = std::clamp<int64_t>(sizes.keys - first, 0, count);
    copy_matrix(x.rows_from(first), there, sizes.width, {columns, dtype_of<T>, 1, count});
    for (int64_t d = 0; there < count && d < sizes.width; ++d) {
      std::fill(columns + d * count + there, columns + (d + 1) * count, T(0.0f));
    }
  });
}

/// The columns of a tile packed by pack_key_columns, `row` elements apart.
template <class T> struct KeyColumns {
  T* data;
  int64_t row;
};

template <class T>
KeyColumns<T> key_columns(const AttentionSizes& sizes, T* packed, int64_t first) {
  const int64_t tile = first / kTileKeys * kTileKeys;
  return {packed + tile * sizes.width + first - tile,
          std::min(kTileKeys, sizes.packed_keys() - tile)};
}

/// Calls f(row begin, row end) for the rows of `block` that see key `key`: once for all, or once
/// per head. Sets the other rows to zero in `scores`.
template <class T, class F>
void for_seeing_rows(const QueryBlock& block, int64_t key, T* scores, const F& f) {
  const QueryRange seeing = block.queries_of(key);
  if (seeing.end - seeing.begin == block.count) return f(0, block.rows);
  for (int64_t row = 0; row < block.rows; row += block.count) {
    std::fill(scores + row, scores + row + seeing.begin, T(0.0f));
    std::fill(scores + row + seeing.end, scores + row + block.count, T(0.0f));
    if (seeing.begin < seeing.end) f(row + seeing.begin, row + seeing.end);
  }
}

/// True when operands of `dtype` are multiplied in bf16: tiles then have T = float and E =
/// bfloat16; otherwise both are float for f32, bf16 and f16, double for f64.
bool multiplies_in_bf16(DType dtype);

/// True when so few queries share each key head that reading the keys dominates the time.
bool has_few_queries(const AttentionSizes& sizes, const AttentionOperands& x);

/// `attend` in float for that case.
void attend_few(const AttentionSizes& sizes, const AttentionOperands& x);

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>

#include "src/kernels/kernel.h"
#include "src/kernels/rows/rows.h"

namespace weft {

/// Sorts rows (the last dim), stable; NaNs count as the greatest. `values` (unless null) and
/// `indices` (i32 or i64, into the row, plus `offset`) receive the first elements of the sorted
/// row, as many as their last dim; when that is shorter than in's, this is top-k.
WEFT_KERNEL(void, sort_rows,
            (const MemoryBlock* values, const MemoryBlock& indices, const MemoryBlock& in,
             bool descending = false, int64_t offset = 0),
            (values, indices, in, descending, offset))

/// The operands of sort_rows as rows, checked; `values` without data when it is null.
struct SortedRows {
  Rows in, values, indices;
  SortedRows(const MemoryBlock* values, const MemoryBlock& indices, const MemoryBlock& in);
};

/// out = how many elements of the sorted row are less than the value, or (`right`) not greater; NaN
/// is the greatest. `sorted` [n] has one row for all values; otherwise its dims but the last are
/// those of `values`. Both have one dtype; out is i64.
WEFT_KERNEL(void, search_sorted,
            (const MemoryBlock& out, const MemoryBlock& sorted, const MemoryBlock& values,
             bool right),
            (out, sorted, values, right))

/// out [k] (i64) = the indices of the elements of `mask` (bool [n], n >= k) that are true, of which
/// there are at most k, then zeros. Both are dense.
WEFT_KERNEL(void, true_places, (const MemoryBlock& out, const MemoryBlock& mask), (out, mask))

/// The operands of search_sorted: sorted rows, and values one by one; checked.
struct SearchedRows {
  Rows sorted, values, out;
  /// Values of one row of `sorted`.
  int64_t values_of_row;
  SearchedRows(const MemoryBlock& out, const MemoryBlock& sorted, const MemoryBlock& values);
};

inline namespace WEFT_COMPILER {

/// Maps x to an integer with the same order; all NaNs become the greatest, both zeros the same.
WEFT_FN inline uint64_t ordered(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x == 0 ? 0.0f : x);
  const uint32_t grows = bits >> 31 ? ~bits : bits | 0x80000000u;
  return x == x ? grows : 0xffffffffu;
}
WEFT_FN inline uint64_t ordered(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x == 0 ? 0.0 : x);
  const uint64_t grows = bits >> 63 ? ~bits : bits | uint64_t{1} << 63;
  return x == x ? grows : ~uint64_t{0};
}
WEFT_FN inline uint64_t ordered(int64_t x) {
  return static_cast<uint64_t>(x) ^ uint64_t { 1 } << 63;
}

// A key is an element of a row: an integer with the order of its value, and its index. No two keys
// of a row are equal, so any sort is stable.

/// Packed in one integer, for values of 32 bits.
struct PackedKey {
  static constexpr int kBits = 32;
  uint64_t bits;

  WEFT_FN static PackedKey of(uint64_t order, int64_t index) {
    return {order << kBits | static_cast<uint64_t>(index)};
  }
  /// A key that comes after all others.
  WEFT_FN static PackedKey last() { return {~uint64_t{0}}; }
  WEFT_FN uint64_t order() const { return bits >> kBits; }
  WEFT_FN int64_t index() const { return static_cast<int64_t>(bits & 0xffffffffu); }
  WEFT_FN bool operator<(const PackedKey& other) const { return bits < other.bits; }
};

struct WideKey {
  static constexpr int kBits = 64;
  uint64_t value, position;

  WEFT_FN static WideKey of(uint64_t order, int64_t index) {
    return {order, static_cast<uint64_t>(index)};
  }
  WEFT_FN static WideKey last() { return {~uint64_t{0}, ~uint64_t{0}}; }
  WEFT_FN uint64_t order() const { return value; }
  WEFT_FN int64_t index() const { return static_cast<int64_t>(position); }
  WEFT_FN bool operator<(const WideKey& other) const {
    return value < other.value || (value == other.value && position < other.position);
  }
};

/// Calls f(Type<Key>{}) with the keys for rows of n elements of C.
template <class C, class F> void visit_keys(int64_t n, const F& f) {
  if constexpr (std::is_same_v<C, float>) {
    if (n < 0xffffffff) return f(Type<PackedKey>{});
  }
  f(Type<WideKey>{});
}

/// Finds how many of the n sorted elements at(i) each of kN values comes behind. It has no branches
/// on the values, which no processor predicts.
template <bool kRight, int kN, class C, class At>
WEFT_FN void find_places(int64_t n, const At& at, const C* values, int64_t* places) {
  const auto is_behind = [](C value, C x) {
    if (kRight) return (x <= value) | (value != value);
    return (x < value) | ((x == x) & (value != value));
  };
  for (int j = 0; j < kN; ++j) places[j] = 0;
  for (; n > 1; n -= n / 2) {
    const int64_t half = n / 2;
    for (int j = 0; j < kN; ++j) {
      places[j] += half & -int64_t{is_behind(values[j], at(places[j] + half - 1))};
    }
  }
  if (n == 0) return;
  for (int j = 0; j < kN; ++j) places[j] += is_behind(values[j], at(places[j])) ? 1 : 0;
}

}  // namespace WEFT_COMPILER
}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/base/numeric.h"
#include "src/kernels/rows/rows.h"

namespace weft {

/// The operands of sort_rows as rows, checked; `values` without data when it is null.
struct SortedRows {
  Rows in, values, indices;
  SortedRows(const MemoryBlock* values, const MemoryBlock& indices, const MemoryBlock& in);
};

inline namespace WEFT_COMPILER {

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

}  // namespace WEFT_COMPILER
}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <optional>

#include "src/base/numeric.h"
#include "src/kernels/take/take.h"

namespace weft::host {

// Indices of the CPU's kernels that take and write elements, checked in runs as they are used.

/// Indices checked together, before they are used.
inline constexpr int64_t kCheckedIndices = 1024;

/// Calls f with a pointer of the indices' type.
template <class F> void with_typed(const MemoryBlock& indices, const F& f) {
  if (indices.dtype == DType::i32) return f(indices.as<int32_t>());
  f(indices.as<int64_t>());
}

/// Returns whether some id of data[begin, end) is not in [low, high).
template <class I>
bool has_outside(const I* data, int64_t begin, int64_t end, int64_t low, int64_t high) {
  const auto least = static_cast<uint64_t>(low);
  uint64_t greatest = 0;
  for (int64_t i = begin; i < end; ++i) {
    greatest = std::max(greatest, static_cast<uint64_t>(static_cast<int64_t>(data[i])) - least);
  }
  return end > begin && greatest >= static_cast<uint64_t>(high) - least;
}

struct Taking : TakenShape {
  const MemoryBlock& indices;
  /// Indices are checked before they are used; those of runs with one out of range are not used.
  bool checks;
  mutable std::atomic<bool> has_mistake = false;

  Taking(const MemoryBlock& whole, const MemoryBlock& taken, const MemoryBlock& where, int dim,
         bool checked)
      : TakenShape(whole, taken, where, dim), indices(where), checks(checked) {}

  /// Calls f with the indices as a function of (o, i, k).
  template <class F> void with_indices(const F& f) const {
    with_typed(indices, [&](const auto* data) {
      const auto place = [size = size](int64_t index) { return index < 0 ? index + size : index; };
      if (slices) return f([=](int64_t, int64_t i, int64_t) { return place(data[i]); });
      f([=, n = n, inner = inner](int64_t o, int64_t i, int64_t k) {
        return place(data[(o * n + i) * inner + k]);
      });
    });
  }

  /// Returns whether the indices of elements [begin, end) of the rows (o, i), or of these slices,
  /// may be used.
  bool may_use(int64_t o, int64_t i, int64_t begin, int64_t end) const {
    const int64_t row = (o * n + i) * inner;
    return slices ? may_use_indices(i, i + 1) : may_use_indices(row + begin, row + end);
  }
  /// The same for rows i to `last`, of one element each.
  bool may_use_run(int64_t o, int64_t i, int64_t last) const {
    const int64_t row = slices ? 0 : o * n;
    return may_use_indices(row + i, row + last);
  }
  bool may_use_indices(int64_t begin, int64_t end) const {
    if (!checks) return true;
    bool wrong = false;
    with_typed(indices,
               [&](const auto* data) { wrong = has_outside(data, begin, end, -size, size); });
    if (wrong) has_mistake.store(true, std::memory_order_relaxed);
    return !wrong;
  }

  std::optional<int64_t> mistake() const {
    // Without elements no index has been read.
    const bool is_unread = outer == 0 || inner == 0;
    return has_mistake || (checks && is_unread) ? host::find_outside(indices, -size, size)
                                                : std::nullopt;
  }
};

/// Calls f(begin, end) on runs of [first, last) whose indices are checked together. f holds copies
/// of what it uses, which the results cannot alias.
template <class F>
void for_each_run(const Taking& t, int64_t o, int64_t first, int64_t last, const F f) {
  if (!t.checks) return f(first, last);
  for (int64_t i = first; i < last; i += kCheckedIndices) {
    const int64_t end = std::min(last, i + kCheckedIndices);
    if (t.may_use_run(o, i, end)) f(i, end);
  }
}

}  // namespace weft::host

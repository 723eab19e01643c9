// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "src/base/numeric.h"
#include "src/kernels/kernel.h"

namespace weft {

// Blocks are dense. `indices` (i32 or i64) are [n], or have the shape of the block with n elements
// along `dim`; negative ones count from the end. All must be in range.

/// Returns the first index that is not in [-size, size); nothing when there is none.
WEFT_KERNEL(std::optional<int64_t>, find_index_outside, (const MemoryBlock& indices, int64_t size),
            (indices, size))

/// out[..., i, ...] = in[..., indices[i], ...], or in[..., indices[..., i, ...], ...].
WEFT_KERNEL(void, take_along,
            (const MemoryBlock& out, const MemoryBlock& in, const MemoryBlock& indices, int dim),
            (out, in, indices, dim))

/// The inverse: out[..., indices[i], ...] += in[..., i, ...], from zeros, in the order of i. Floats
/// accumulate in f32 (f64 for f64), integers in i64.
WEFT_KERNEL(void, add_along,
            (const MemoryBlock& out, const MemoryBlock& in, const MemoryBlock& indices, int dim),
            (out, in, indices, dim))

/// How `reduce_along` combines elements.
enum class Combining { product, most, least };

/// add_along with another way to combine: elements of `out` without an index are 0. NaN is the most
/// and the least of elements among which it is.
WEFT_KERNEL(void, reduce_along,
            (const MemoryBlock& out, const MemoryBlock& in, const MemoryBlock& indices, int dim,
             Combining combining),
            (out, in, indices, dim, combining))

inline namespace WEFT_COMPILER {

struct Multiplied {
  template <class C>
  WEFT_FN static C combine(C a, C b) {
    return a * b;
  }
};
struct Most {
  template <class C>
  WEFT_FN static C combine(C a, C b) {
    return a > b || a != a ? a : b;
  }
};
struct LeastOfBoth {
  template <class C>
  WEFT_FN static C combine(C a, C b) {
    return a < b || a != a ? a : b;
  }
};

/// Calls f with the functor of `combining`.
template <class F>
void with_functor(Combining combining, const F& f) {
  switch (combining) {
    case Combining::product:
      return f(Multiplied());
    case Combining::most:
      return f(Most());
    case Combining::least:
      return f(LeastOfBoth());
  }
}

}  // namespace WEFT_COMPILER
}  // namespace weft

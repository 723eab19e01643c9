// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "src/kernels/kernel.h"

namespace weft {

// Blocks are dense. `indices` (i32 or i64) are [n], or have the shape of the block with n elements
// along `dim`; negative ones count from the end. All must be in range. With `checks`, the functions
// return the first index that is not, and leave the result unspecified then.

/// Returns the first id (i32 or i64) that is neither in [low, high) nor `allowed`; nothing when
/// there is none. Any strides.
WEFT_KERNEL(std::optional<int64_t>, find_outside,
            (const MemoryBlock& ids, int64_t low, int64_t high,
             std::optional<int64_t> allowed = {}),
            (ids, low, high, allowed))

/// Returns the first index that is not in [-size, size); nothing when there is none.
inline std::optional<int64_t> find_index_outside(const MemoryBlock& indices, int64_t size) {
  return find_outside(indices, -size, size);
}

/// out[..., i, ...] = in[..., indices[i], ...], or in[..., indices[..., i, ...], ...].
WEFT_KERNEL(std::optional<int64_t>, take_along,
            (const MemoryBlock& out, const MemoryBlock& in, const MemoryBlock& indices, int dim,
             bool checks = false),
            (out, in, indices, dim, checks))

/// The larger and the smaller block of these functions viewed as [outer, size or n, inner]. Each
/// slice [inner] has one index when `slices`, otherwise each element has its own. Checked.
struct TakenShape {
  int64_t outer = 1, size, n, inner = 1;
  bool slices;
  TakenShape(const MemoryBlock& whole, const MemoryBlock& taken, const MemoryBlock& indices,
             int dim);
};

/// The result for an element that another one is written to. A NaN is the greatest and the least.
/// `add` starts from zeros, `accumulate` from the elements of the result.
enum class WriteMode : uint8_t { add, replace, multiply, max, min, accumulate };

/// Writes in[..., i, ...] to out[..., indices[i], ...], in the order of i: the last one that
/// replaces stays. The dtypes are equal; other elements of `out` are unchanged. With `add`, the
/// inverse of take_along, `out` starts from zeros and has any dtype; floats accumulate in f32 (f64
/// for f64), integers in i64. `accumulate` takes the dtypes that these sums have.
WEFT_KERNEL(std::optional<int64_t>, write_along,
            (const MemoryBlock& out, const MemoryBlock& in, const MemoryBlock& indices, int dim,
             WriteMode mode, bool checks = false),
            (out, in, indices, dim, mode, checks))

}  // namespace weft

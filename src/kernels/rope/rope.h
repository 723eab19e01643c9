// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/kernel.h"
#include "src/kernels/rows/rows.h"

namespace weft {

/// Parameters of rotary position embedding.
struct Rope {
  /// Pair i of a head of D elements is rotated by position * theta^(-2i/D).
  double theta = 10000;
  /// Position of the first element along the sequence dim.
  int64_t offset = 0;
  /// Rotates backwards, which computes the gradient.
  bool inverse = false;
};

/// The operands of rope as rows, checked.
struct RopeRows {
  Rows x, y;
  /// Pairs of a row, positions, and consecutive rows that have one position.
  int64_t half, positions, inside = 1;
  RopeRows(const MemoryBlock& y, const MemoryBlock& x, int sequence_dim);
};

/// Rotates `x` along its last dim (one head, of even size D): element i pairs with i + D/2, as in
/// Hugging Face's rotate_half. Positions run along `sequence_dim`. Angles are f32, as in Hugging
/// Face. y may be x.
WEFT_KERNEL(void, rope,
            (const MemoryBlock& y, const MemoryBlock& x, int sequence_dim, const Rope& options),
            (y, x, sequence_dim, options))

}  // namespace weft

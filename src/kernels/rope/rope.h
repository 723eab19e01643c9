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
  /// Factor of the rotated elements.
  double scale = 1;
};

/// The operands of rope as rows, checked.
struct RopeRows {
  Rows x, y;
  /// Pairs of a row that are rotated, positions, and consecutive rows that have one position.
  int64_t pairs, positions, inside = 1;
  /// Frequencies, or nullptr.
  const float* frequencies = nullptr;
  /// The position of each token, which `positions` counts, or nullptr.
  const int64_t* given = nullptr;
  RopeRows(const MemoryBlock& y, const MemoryBlock& x, int sequence_dim,
           const MemoryBlock* frequencies, const MemoryBlock* given);
  /// Elements after the rotated ones.
  int64_t rest() const { return x.size() - 2 * pairs; }
};

/// Rotates `x` along its last dim (one head, of even size D): element i pairs with i + D/2, as in
/// Hugging Face's rotate_half. Positions run along `sequence_dim`. Angles are f32, as in Hugging
/// Face. y may be x. With `frequencies` (f32 [p], dense) in place of theta, element i pairs with
/// i + p, and the elements from 2 p on are copied. `positions` (i64, dense, of the dims up to
/// `sequence_dim`) state the position of each token.
WEFT_KERNEL(void, rope,
            (const MemoryBlock& y, const MemoryBlock& x, int sequence_dim, const Rope& options,
             const MemoryBlock* frequencies = nullptr, const MemoryBlock* positions = nullptr),
            (y, x, sequence_dim, options, frequencies, positions))

}  // namespace weft

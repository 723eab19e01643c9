// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/block.h"

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

/// Rotates `x` along its last dim (one head, of even size D): element i pairs with i + D/2, as in
/// Hugging Face's rotate_half. Positions run along `sequence_dim`. Angles are f32, as in Hugging
/// Face. y may be x.
void rope(const Block& y, const Block& x, int sequence_dim, const Rope& options);

}  // namespace weft

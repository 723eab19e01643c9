// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/block.h"

namespace weft {

/// How rotary position embedding turns pairs of elements.
struct Rope {
  /// Pair i of a head of D elements turns by position * theta^(-2i/D).
  double theta = 10000;
  /// Position of the first element along the sequence dim.
  int64_t offset = 0;
  /// Turns back: the gradient.
  bool inverse = false;
};

/// Rotates `x` along its last dim (one head, of even size D): element i pairs with i + D/2, as in
/// Hugging Face's rotate_half. `sequence_dim` counts positions. Angles are f32, as they are there.
/// y may be x.
void rope(const Block& y, const Block& x, int sequence_dim, const Rope& options);

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>
#include <vector>

#include "weft/extend/pattern.h"

namespace weft {

/// Running sums of the explicit sizes of a pattern. With them the box of every rank takes the same
/// time, without them a time that grows with the number of parts before it.
class PartOffsets {
 public:
  explicit PartOffsets(const Pattern& pattern);
  /// Part `index` of those that begin with number `first` along an axis with explicit sizes.
  Chunk part(int axis, int64_t first, int index) const;

 private:
  /// For each axis with explicit sizes, the sum of the sizes before each part, and of all.
  std::array<std::vector<int64_t>, kMaxAxes> begins_;
};

/// Returns the part of `shape` at `coordinates`, as the `box_of` of weft/extend/pattern.h.
Box box_of(const Pattern& pattern, const PartOffsets& offsets, std::span<const int> sizes,
           const Shape& shape, std::span<const int> coordinates);

}  // namespace weft

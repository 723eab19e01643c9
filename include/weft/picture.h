// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <string>

#include "weft/export.h"
#include "weft/placement.h"
#include "weft/tensor.h"

namespace weft {

/// The part of a tensor that each rank holds, in words and as the text of an SVG file, which needs
/// no other file.
struct WEFT_API Picture {
  std::string text, svg;
};

/// Draws the last two dims of a tensor once a rank, with the part that the rank holds filled. No
/// communication.
WEFT_API Picture visualize(const Tensor& tensor);
/// Draws what `explain` prints: the layout before, the plan of `tensor.redistribute(placements)`,
/// and the layout after. std::invalid_argument for a tensor without a mesh.
WEFT_API Picture visualize(const Tensor& tensor, const Placements& placements);

/// Prints the text.
WEFT_API std::ostream& operator<<(std::ostream& out, const Picture& picture);

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <iosfwd>
#include <string>

#include "weft/export.h"
#include "weft/placement.h"
#include "weft/program.h"
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

/// Runs `work` and returns the steps of its ops on this rank, in forward and backward: what they
/// move, compute, and allocate on a kind of device. With tensors on `meta` nothing is computed or
/// communicated. Collectives that no op makes, as those of `fully_shard`, are not steps of it.
WEFT_API Program program_of(const std::function<void()>& work,
                            DeviceKind memory = DeviceKind::meta);
/// Draws the program of one rank, or those of several: the text is that of the first.
WEFT_API Picture visualize(const Program& program);
WEFT_API Picture visualize(const std::vector<Program>& ranks);

/// Prints the text.
WEFT_API std::ostream& operator<<(std::ostream& out, const Picture& picture);

}  // namespace weft

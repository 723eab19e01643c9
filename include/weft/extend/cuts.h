// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "weft/block.h"
#include "weft/export.h"
#include "weft/mesh.h"
#include "weft/placement.h"
#include "weft/sharding.h"

namespace weft {

/// Returns the intersection of two boxes.
WEFT_API Box overlap(const Box& a, const Box& b);
/// Returns `box` relative to the first element of `frame`.
WEFT_API Box relative(const Box& box, const Box& frame);
/// True when `outer` contains every element of `inner`.
WEFT_API bool contains(const Box& outer, const Box& inner);

/// The content of a Sharding as plain data: the layout of a tensor over a mesh that need not exist
/// in this process. Without axes, each rank holds the whole tensor.
struct Cuts {
  std::vector<MeshAxis> axes;
  std::vector<Placement> placements;
  /// cutting[dim]: the axes that cut the dim, outermost first. Trailing dims that no axis cuts may
  /// be missing.
  std::vector<std::vector<int>> cutting;
  bool operator==(const Cuts&) const = default;

  /// Number of ranks of the mesh; 1 without axes.
  WEFT_API int ranks() const;
};

/// Returns the cuts of `sharding`; without axes for an empty one.
WEFT_API Cuts cuts_of(const Sharding& sharding);
/// Returns the part of a tensor of `shape` that `rank` (row-major over the axes) holds.
WEFT_API Box box_of(const Cuts& cuts, const Shape& shape, int rank);
/// Throws std::invalid_argument "<what>: ..." unless `cuts` describe a valid sharding, without
/// Partials, of tensors of `ndim` dims.
WEFT_API void check_cuts(const std::string& what, const Cuts& cuts, int ndim);

}  // namespace weft

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

/// Elements that both boxes hold.
WEFT_API Box overlap(const Box& a, const Box& b);
/// `box` seen from the first element of `frame`.
WEFT_API Box relative(const Box& box, const Box& frame);
/// True when every element of `inner` is one of `outer`.
WEFT_API bool contains(const Box& outer, const Box& inner);

/// The content of a Sharding: how a tensor lies over a world that need not be there. No axes: whole
/// on each rank.
struct Cuts {
  std::vector<MeshAxis> axes;
  std::vector<Placement> placements;
  /// cutting[dim]: axes that cut the dim, outermost first; dims that nobody cuts may be absent.
  std::vector<std::vector<int>> cutting;
  bool operator==(const Cuts&) const = default;

  /// Ranks of the mesh; 1 without axes.
  WEFT_API int ranks() const;
};

/// Those of `sharding`; none for an empty one.
WEFT_API Cuts cuts_of(const Sharding& sharding);
/// The part of a tensor of `shape` that `rank` (row-major over the axes) holds.
WEFT_API Box box_of(const Cuts& cuts, const Shape& shape, int rank);
/// std::invalid_argument "<what>: ..." unless `cuts` are those of some sharding of tensors of
/// `ndim` dims.
WEFT_API void check_cuts(const std::string& what, const Cuts& cuts, int ndim);

}  // namespace weft

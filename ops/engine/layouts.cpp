// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/layouts.h"

#include "weft/shape.h"

#include <algorithm>

namespace weft {

static std::vector<int> cutting_order(const Sharding& like, std::span<const Placement> placements,
                                      int dim) {
  std::vector<int> order;
  for (int axis : like.axes_cutting(dim)) {
    if (placements[static_cast<size_t>(axis)].is_shard(dim)) order.push_back(axis);
  }
  for (int axis = 0; axis < static_cast<int>(placements.size()); ++axis) {
    bool listed = std::find(order.begin(), order.end(), axis) != order.end();
    if (placements[static_cast<size_t>(axis)].is_shard(dim) && !listed) order.push_back(axis);
  }
  return order;
}

Sharding with_placements(const Sharding& like, std::span<const Placement> placements) {
  DeviceMesh mesh = like.mesh();
  Placements stated(placements);
  for (int dim = 0; dim < kMaxDims; ++dim) {
    std::vector<int> order = cutting_order(like, placements, dim);
    if (order.size() < 2) continue;
    std::vector<std::string> names;
    for (int axis : order) names.push_back(mesh.axis_name(axis));
    stated = stated.cut_in_order(dim, std::move(names));
  }
  return Sharding(mesh, stated);
}

Sharding reduced_sharding(const Sharding& sharding) {
  std::vector<Placement> placements(sharding.placements().begin(), sharding.placements().end());
  for (Placement& placement : placements) {
    if (placement.is_partial()) placement = Replicate();
  }
  return with_placements(sharding, placements);
}

bool counts_here(const Sharding& sharding) {
  for (int axis = 0; axis < sharding.axes(); ++axis) {
    const Placement& placement = sharding[axis];
    const bool sums = placement.is_partial() && placement.op() == ReduceOp::sum;
    if (sums && sharding.mesh().coordinate(axis) != 0) return false;
  }
  return true;
}

}  // namespace weft

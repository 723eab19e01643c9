// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/cuts.h"

#include "mesh/pattern.h"
#include "weft/error.h"

namespace weft {

int Cuts::ranks() const {
  int ranks = 1;
  for (const MeshAxis& axis : axes) ranks *= axis.size;
  return ranks;
}

Cuts cuts_of(const Sharding& sharding) {
  Cuts cuts;
  if (!sharding) return cuts;
  const DeviceMesh mesh = sharding.mesh();
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    cuts.axes.push_back({mesh.axis_name(axis), mesh.axis_size(axis)});
    cuts.placements.push_back(sharding[axis]);
  }
  for (int dim = kMaxDims; dim-- > 0;) {
    const auto order = sharding.axes_cutting(dim);
    if (order.empty() && cuts.cutting.empty()) continue;
    cuts.cutting.insert(cuts.cutting.begin(), {order.begin(), order.end()});
  }
  return cuts;
}

Box box_of(const Cuts& cuts, const Shape& shape, int rank) {
  Pattern pattern(static_cast<int>(cuts.axes.size()));
  std::array<int, kMaxAxes> sizes{};
  Coordinates coordinates{};
  for (size_t axis = cuts.axes.size(); axis-- > 0;) {
    sizes[axis] = cuts.axes[axis].size;
    coordinates[axis] = rank % sizes[axis];
    rank /= sizes[axis];
    pattern.set(static_cast<int>(axis), cuts.placements[axis]);
  }
  for (size_t dim = 0; dim < cuts.cutting.size(); ++dim) {
    Axes order;
    for (int axis : cuts.cutting[dim]) order.push_back(axis);
    pattern.set_order(static_cast<int>(dim), order);
  }
  return box_of(pattern, {sizes.data(), cuts.axes.size()}, shape,
                {coordinates.data(), cuts.axes.size()});
}

/// Returns how often the order of dim `of` names `axis`, or -1 when the order of another dim names
/// it.
static int mentions(const Cuts& cuts, int axis, int of) {
  int count = 0;
  for (size_t dim = 0; dim < cuts.cutting.size(); ++dim) {
    for (int other : cuts.cutting[dim]) {
      if (other != axis) continue;
      if (static_cast<int>(dim) != of) return -1;
      ++count;
    }
  }
  return count;
}

void check_cuts(const std::string& what, const Cuts& cuts, int ndim) {
  if (cuts.axes.size() > kMaxAxes || cuts.placements.size() != cuts.axes.size() ||
      cuts.cutting.size() > kMaxDims) {
    fail(what, ": ", cuts.placements.size(), " placements for ", cuts.axes.size(),
         " axes; at most ", kMaxAxes, " axes, with a placement each");
  }
  int64_t ranks = 1;
  for (const MeshAxis& axis : cuts.axes) {
    if (axis.size < 1 || (ranks *= axis.size) > INT32_MAX) {
      fail(what, ": axis ", in_quotes(axis.name), " of ", axis.size, " makes no mesh");
    }
  }
  for (const auto& order : cuts.cutting) {
    for (int axis : order) {
      if (axis >= 0 && axis < static_cast<int>(cuts.axes.size())) continue;
      fail(what, ": a cut by axis ", axis, " of ", cuts.axes.size());
    }
  }
  for (size_t i = 0; i < cuts.axes.size(); ++i) {
    const Placement& placement = cuts.placements[i];
    if (placement.is_partial() || placement.dim() >= ndim) {
      fail(what, ": placement ", placement, " of a tensor of ", ndim, " dims");
    }
    if (mentions(cuts, static_cast<int>(i), placement.dim()) != (placement.is_shard() ? 1 : 0)) {
      fail(what, ": the order of the cuts does not name axis ", in_quotes(cuts.axes[i].name),
           ", which is ", placement, ", where it cuts");
    }
  }
}

}  // namespace weft

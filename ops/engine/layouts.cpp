// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/layouts.h"

#include <numeric>

#include "weft/error.h"

namespace weft {

Sharding reduced_sharding(const Sharding& sharding) {
  Pattern pattern = sharding.pattern();
  for (const int axis : pattern.partial_axes()) pattern.set(axis, Replicate());
  return Sharding::of(sharding.mesh(), pattern);
}

bool counts_here(const Sharding& sharding) {
  for (int axis = 0; axis < sharding.axes(); ++axis) {
    const Placement& placement = sharding[axis];
    const bool sums = placement.is_partial() && placement.op() == ReduceOp::sum;
    if (sums && sharding.mesh().coordinate(axis) != 0) return false;
  }
  return true;
}

void check_sizes(const char* what, const Placements& placements, const Shape& shape) {
  const auto check = [&](const Placement& placement) {
    if (!placement.has_sizes()) return;
    const int dim = placement.counted(shape.ndim()).dim();
    const std::span<const int64_t> sizes = placement.sizes();
    const int64_t sum = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    if (dim >= shape.ndim() || sum == shape[dim]) return;
    fail(what, ": sum of the sizes of ", placement, " is ", sum, ", expected ", shape[dim],
         ", the size of dim ", dim, " of ", shape);
  };
  for (const Placement& placement : placements.by_position()) check(placement);
  for (const NamedPlacement& named : placements.by_name()) check(named.placement);
}

}  // namespace weft

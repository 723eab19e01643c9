// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/layouts.h"

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

}  // namespace weft

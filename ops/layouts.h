// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "weft/sharding.h"

namespace weft {

/// Those placements over the mesh of `like`, one a root axis; where several axes cut a dim, in the
/// order of `like` as far as it says.
Sharding with_placements(const Sharding& like, std::span<const Placement> placements);

/// The same with every Partial made Replicate.
Sharding reduced_sharding(const Sharding& sharding);

/// Whether this rank's part holds an addend that makes the whole: not the parts of the other ranks
/// of a Partial(sum), which are 0 where each rank knows the whole.
bool counts_here(const Sharding& sharding);

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/sharding.h"
#include "weft/tensor.h"

namespace weft {

/// Returns `sharding` with every Partial made Replicate.
Sharding reduced_sharding(const Sharding& sharding);

/// True if this rank's part contributes to the whole. False on all but the first ranks of a
/// Partial(sum) if each rank knows the whole: their addends are 0.
bool counts_here(const Sharding& sharding);

/// Checks that explicit sizes of parts add up to the dims of `shape`; std::invalid_argument
/// "what: ..." otherwise.
void check_sizes(const char* what, const Placements& placements, const Shape& shape);

/// Checks the shape of a new tensor: std::invalid_argument "what: ..." for a negative size.
void check_shape(const char* what, const Shape& shape);

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "src/comm/transport.h"

namespace weft {

/// std::invalid_argument when a call cannot be made by a rank of a group of `size`: a root that is
/// not there, counts that are not one a rank, memory that is missing or overlaps, a reduction that
/// does not exist.
void check_collective(const Collective& call, int rank, int size);

/// std::invalid_argument unless `ranks` are ranks of `parent`, each once, its own among them.
void check_subgroup(const Transport& parent, std::span<const int> ranks);

}  // namespace weft

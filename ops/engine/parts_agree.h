// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/engine/choose.h"

namespace weft {

/// True when all operands and results that have a factor divide it into the same parts. Where no
/// part has an explicit size, the rules of cuts ensure it.
bool parts_agree(const ChoiceQuery& query, const Choice& choice);

/// True when all operands that have one of the joined factors are cut along it as they were given:
/// only then each rank has the rows of its own entries.
bool keeps_joined(const ChoiceQuery& query, const Choice& choice);

/// True when `size * inner` elements cut into `parts` have the boundaries of `size` cut into them.
bool boundaries_coincide(int64_t size, int64_t inner, std::span<const int> parts);

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/engine/choose.h"

namespace weft {

/// True when all operands and results that have a factor divide it into the same parts. Where no
/// part has an explicit size, the rules of cuts ensure it.
bool parts_agree(const ChoiceQuery& query, const Choice& choice);

}  // namespace weft

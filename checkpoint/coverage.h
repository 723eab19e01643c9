// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "weft/extend/pattern.h"

namespace weft {

/// Proves that `boxes`, each inside `wanted`, together hold each element of it exactly once.
/// std::invalid_argument "checkpoint: <what>: ..." with the first hole's or overlap's sizes.
void check_covers_once(const std::string& what, const Box& wanted, const std::vector<Box>& boxes);

}  // namespace weft

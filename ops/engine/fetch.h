// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "mesh/layout.h"

namespace weft {

/// Returns the slice of an operand that a slice of the result needs.
using Needs = std::function<Box(const Box& result)>;

/// Returns each rank's slice of the operand, clipped to the operand's shape.
std::vector<Box> needed_boxes(const Layout& operand, const Layout& result, const Needs& needs);

/// True when every rank holds what it needs.
bool is_local_fetch(const Layout& operand, const std::vector<Box>& needed);

/// Predicted time of fetching, for the bytes of the rank that needs most from others.
double predicted_fetch_seconds(const Layout& operand, const Layout& result, const Needs& needs);

}  // namespace weft

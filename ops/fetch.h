// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "mesh/layout.h"

namespace weft {

/// Which slice of an operand a slice of the result needs.
using Needs = std::function<Box(const Box& result)>;

/// The slice of the operand each rank of the mesh needs, clipped to the operand's shape.
std::vector<Box> needed_boxes(const Layout& operand, const Layout& result, const Needs& needs);

/// True when every rank holds what it needs.
bool is_local_fetch(const Layout& operand, const std::vector<Box>& needed);

/// What fetching costs: the bytes of the rank that needs most from others.
double predicted_fetch_seconds(const Layout& operand, const Layout& result, const Needs& needs);

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "weft/shape.h"

namespace weft {

/// What an op call says besides its operands. Only `structure` (dims, flags, sizes) takes part in
/// the route's key; numbers of the computation (scalars, eps, seeds) are values.
struct Attributes {
  Dims structure = {};
  std::array<double, 6> values{};
  std::array<uint64_t, 2> random{};
};

}  // namespace weft

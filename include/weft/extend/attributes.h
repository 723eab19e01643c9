// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "weft/shape.h"

namespace weft {

/// Arguments of an op call other than its operands. Only `structure` (dims, flags, sizes) is part
/// of the key under which the call's route is cached; `values` (scalars, eps) and `random` (seed,
/// stream) are not.
struct Attributes {
  Dims structure = {};
  std::array<double, 6> values{};
  std::array<uint64_t, 2> random{};
};

}  // namespace weft

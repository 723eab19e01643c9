// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "weft/communicator.h"

namespace weft {

/// 16 random hexadecimal digits.
std::string drawn_tag();
/// 16 hexadecimal digits that rank 0 draws, the same on all ranks of `world`. Collective.
std::string drawn_tag(const Communicator& world);

}  // namespace weft

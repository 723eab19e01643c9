// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "weft/communicator.h"

namespace weft {

/// 16 random hexadecimal digits.
std::string drawn_tag();
/// 16 hexadecimal digits that rank 0 draws, the same on all ranks of `world`. Collective.
std::string drawn_tag(const Communicator& world);

/// What `find` returns or throws on the first rank, on all ranks of `world`. Collective.
std::string told_by_first(const Communicator& world, const std::function<std::string()>& find);

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "weft/communicator.h"
#include "weft/export.h"

namespace weft {

/// Returns or throws on all ranks of `world` what `find` returns or throws on the first, which
/// alone calls it. Collective.
WEFT_API std::string told_by_first(const Communicator& world,
                                   const std::function<std::string()>& find);

}  // namespace weft

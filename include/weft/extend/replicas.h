// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/export.h"
#include "weft/optimizer.h"

namespace weft {

/// The same as `check_replicas` of a module, for the state of those parameters of an optimizer that
/// have had an update. Collective.
WEFT_API void check_replicas(Optimizer& optimizer);

}  // namespace weft

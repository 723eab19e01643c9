// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/anomaly.h"
#include "weft/export.h"
#include "weft/module.h"

namespace weft {

/// Returns the path of a module of `model` by its address: what DetectAnomaly and ShadowScope name.
WEFT_API ScopeNames module_paths(Module& model);

}  // namespace weft

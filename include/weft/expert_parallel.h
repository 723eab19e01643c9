// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "weft/export.h"
#include "weft/fsdp.h"
#include "weft/mesh.h"
#include "weft/module.h"

namespace weft {

/// Returns `options` for `fully_shard` of a model with experts over `data`, the view of all axes
/// that cut tokens, of which `ep` cuts the experts too (`expert_styles`): dense parameters are
/// sharded over all of them, those of each `Experts` in `modules` over the others. A strategy of
/// several rows has one for each other axis; that of the last one is also that of `ep`.
///
/// std::invalid_argument when `data` lacks the axis or has no other, or the strategy does not fit
/// the others.
WEFT_API FullyShardOptions with_experts(FullyShardOptions options,
                                        const std::vector<Module*>& modules, const DeviceMesh& data,
                                        const std::string& ep = "ep");

}  // namespace weft

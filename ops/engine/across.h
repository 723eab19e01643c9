// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/engine/call_body.h"
#include "ops/engine/op_body.h"

namespace weft {

/// Runs an op's `across`, on copies in host memory for blocks on a GPU.
void run_across(const OpBody& op, const Route& route, const CallBody& call);

}  // namespace weft

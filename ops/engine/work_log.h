// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/engine/binding.h"
#include "ops/engine/call_body.h"
#include "weft/extend/work_log.h"

namespace weft {

/// Returns the number of combinations of the indices of all factors on this rank, which holds the
/// parts `operands` and `results`.
double factor_combinations(const Binding& binding, std::span<const Ref<Layout>> operands,
                           std::span<const Ref<Layout>> results);

/// Adds a call that is not executed.
void log_work(WorkLog& log, const OpBody& op, const Route& route, const CallBody& call);

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/binding.h"
#include "ops/call_body.h"
#include "weft/work_log.h"

namespace weft {

/// The number of combinations of indices of all factors on this rank, whose parts are `operands`
/// and `results`.
double factor_combinations(const Binding& binding, std::span<const Ref<Layout>> operands,
                           std::span<const Ref<Layout>> results);

/// Adds a call that is not run.
void log_work(WorkLog& log, const OpBody& op, const Route& route, const CallBody& call);

}  // namespace weft

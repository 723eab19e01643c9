// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/machine.h"
#include "cli/parallel_transformer.h"
#include "weft/memory_budget.h"

namespace weft::cli {

/// Predicts a step of one rank; `world` may be a fake one. Measures models of few layers on `meta`
/// and extrapolates, because each further repetition of the pattern of layers adds the same.
StepCost step_cost(const Communicator& world, const TransformerConfig& config,
                   const ParallelOptions& options, int ranks_per_host);

/// Prints what is gathered, computed and freed when, one line an action. A model of more than 128
/// layers is shown as one of 128, as the first line states.
std::string step_schedule(const Communicator& world, TransformerConfig config,
                          const ParallelOptions& options);

}  // namespace weft::cli

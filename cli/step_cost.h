// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "cli/machine.h"
#include "cli/parallel_transformer.h"
#include "weft/device.h"
#include "weft/memory_budget.h"
#include "weft/trace.h"

namespace weft::cli {

/// Predicts a step of one rank; `world` may be a fake one. Measures models of few layers on `meta`
/// and extrapolates, because each further repetition of the pattern of layers adds the same.
StepCost step_cost(const Communicator& world, const TransformerConfig& config,
                   const ParallelOptions& options, int ranks_per_host);

/// Prints what is gathered, computed and freed when, one line an action. A model of more than 128
/// layers is shown as one of 128, as the first line states.
std::string step_schedule(const Communicator& world, TransformerConfig config,
                          const ParallelOptions& options);

/// What `weft estimate` predicts of a step of rank 0 on such machines. Leaves the calling rank's
/// random numbers as they are.
StepSeconds predicted_step(const Machine& machine, const TransformerConfig& config,
                           const ParallelOptions& options, int ranks, int ranks_per_host);

/// Prints how many events this rank's trace dropped, and how much of its communication the GPU
/// overlapped with computing in the spans "step", compared with the prediction. Records both in the
/// trace. Reports no overlap on a CPU, where ranks run their own communication.
void report_trace(TraceScope& trace, Device device, const std::optional<StepSeconds>& predicted);

}  // namespace weft::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "cli/step_cost.h"
#include "weft/device.h"
#include "weft/trace.h"

namespace weft::cli {

/// What `weft estimate` predicts of a step of rank 0 on such machines. Leaves the calling rank's
/// random numbers as they are.
StepSeconds predicted_step(const Machine& machine, const TransformerConfig& config,
                           const ParallelOptions& options, int ranks, int ranks_per_host);

/// Prints how many events this rank's trace dropped, and how much of its communication the GPU
/// overlapped with computing in the spans "step", compared with the prediction. Records both in the
/// trace. Reports no overlap on a CPU, where ranks run their own communication.
void report_trace(TraceScope& trace, Device device, const std::optional<StepSeconds>& predicted);

}  // namespace weft::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "cli/step_cost.h"
#include "weft/device.h"
#include "weft/trace.h"

namespace weft::cli {

/// What `weft estimate` predicts of a step of rank 0 on such machines. Leaves the calling rank's
/// random numbers as they are.
StepSeconds predicted_step(const Machine& machine, const LlamaConfig& config,
                           const ParallelOptions& options, int ranks, int ranks_per_host);

/// Prints what found no room in this rank's trace, and how much of its communication its GPU hid
/// behind computing in the spans "step", beside what was predicted; notes both in the trace.
/// Nothing of that on a CPU, whose ranks communicate by themselves.
void report_trace(TraceScope& trace, Device device, const std::optional<StepSeconds>& predicted);

}  // namespace weft::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "cli/step_cost.h"
#include "weft/device.h"
#include "weft/trace.h"

namespace weft::cli {

/// What `weft estimate` predicts of a step on such GPUs, eight a host; nothing where it does not
/// know them. Leaves the rank's random numbers as they are.
std::optional<StepSeconds> predicted_step(Device device, const LlamaConfig& config,
                                          const ParallelOptions& options, int ranks);

/// Prints how much of its communication this rank's GPU hid behind computing in the spans "step" of
/// a trace, beside what was predicted, and notes both in the trace. Nothing on a CPU, whose ranks
/// communicate by themselves.
void report_overlap(TraceScope& trace, Device device, const std::optional<StepSeconds>& predicted);

}  // namespace weft::cli

// SPDX-License-Identifier: Apache-2.0
#include "cli/overlap.h"

#include <algorithm>
#include <cstdio>

#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/error.h"

namespace weft::cli {

StepSeconds predicted_step(const Machine& machine, const TransformerConfig& config,
                           const ParallelOptions& options, int ranks, int ranks_per_host) {
  const RandomState before = Context::current().random;
  const Communicator world = fake_world(0, ranks, ranks_per_host, !machine.overlaps);
  const StepCost cost = step_cost(world, config, options, ranks_per_host);
  Context::current().random = before;
  return step_seconds(cost, machine);
}

/// "measured: 0.012 s of communication a step on rank 0's GPU, 0.011 s of them hidden".
static void tell(TraceScope& trace, const char* what, double communication, double exposed) {
  trace.note(concat(what, "_communication_seconds"), communication);
  trace.note(concat(what, "_exposed_seconds"), exposed);
  std::printf("%s: %.4g s of communication a step on rank 0's GPU, %.4g s of them hidden\n", what,
              communication, std::max(0.0, communication - exposed));
}

static void report_overlap(TraceScope& trace, Device device,
                           const std::optional<StepSeconds>& predicted) {
  const TraceOverlap measured = trace.overlap("step");
  if (measured.communication == 0) return;
  tell(trace, "measured", measured.communication, measured.exposed);
  if (predicted) {
    tell(trace, "predicted", predicted->communication, predicted->total - predicted->compute);
  } else {
    std::printf("predicted: nothing, for weft does not know the rates of %s\n",
                device_name(device).c_str());
  }
}

void report_trace(TraceScope& trace, Device device, const std::optional<StepSeconds>& predicted) {
  if (trace.dropped() > 0) {
    std::printf("the trace holds the first %lld events of rank 0; %lld were dropped\n",
                static_cast<long long>(trace.events()), static_cast<long long>(trace.dropped()));
  }
  if (device.kind == DeviceKind::cuda) report_overlap(trace, device, predicted);
  std::fflush(stdout);
}

}  // namespace weft::cli

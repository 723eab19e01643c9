// SPDX-License-Identifier: Apache-2.0
#include "cli/overlap.h"

#include <algorithm>
#include <cstdio>

#include "weft/context.h"
#include "weft/error.h"

namespace weft::cli {

static constexpr int kRanksAHost = 8;

std::optional<StepSeconds> predicted_step(Device device, const LlamaConfig& config,
                                          const ParallelOptions& options, int ranks) {
  if (device.kind != DeviceKind::cuda) return {};
  const std::optional<Machine> machine = machine_of_device(device_name(device), options.dtype);
  if (!machine) return {};
  const RandomState before = Context::current().random;
  const Communicator world = fake_world(0, ranks, kRanksAHost, !machine->overlaps);
  const StepCost cost = step_cost(world, config, options, kRanksAHost);
  Context::current().random = before;
  return step_seconds(cost, *machine);
}

/// "measured:  0.012 s of communication a step, 0.011 s of them hidden".
static void tell(TraceScope& trace, const char* what, double communication, double exposed) {
  trace.note(concat(what, "_communication_seconds"), communication);
  trace.note(concat(what, "_exposed_seconds"), exposed);
  std::printf("%s: %.4g s of communication a step, %.4g s of them hidden\n", what, communication,
              std::max(0.0, communication - exposed));
}

void report_overlap(TraceScope& trace, Device device, const std::optional<StepSeconds>& predicted) {
  if (device.kind != DeviceKind::cuda) return;
  const TraceOverlap measured = trace.overlap("step");
  if (measured.spans == 0) return;
  tell(trace, "measured", measured.communication, measured.exposed);
  if (predicted) {
    tell(trace, "predicted", predicted->communication, predicted->total - predicted->compute);
  } else {
    std::printf("predicted: nothing, the rates of a %s are not known\n",
                device_name(device).c_str());
  }
  std::fflush(stdout);
}

}  // namespace weft::cli

// SPDX-License-Identifier: Apache-2.0
#include "cli/step_cost.h"

#include <algorithm>
#include <numeric>

#include "weft/ops.h"

namespace weft::cli {

/// True when ranks that differ along the axes ("dp" or "dp+tp") of the mesh are of several hosts.
static bool crosses_hosts(const DeviceMesh& mesh, const std::string& axes, int ranks_per_host) {
  int64_t stride = 1, span = 1;
  for (int axis = mesh.ndim() - 1; axis >= 0; --axis) {
    bool named = false;
    for (size_t at = 0; at <= axes.size();) {
      size_t end = std::min(axes.find('+', at), axes.size());
      named = named || axes.substr(at, end - at) == mesh.axis_name(axis);
      at = end + 1;
    }
    if (named) span = stride * mesh.axis_size(axis);
    stride *= mesh.axis_size(axis);
  }
  return span > ranks_per_host;
}

static AxisCost& cost_over(StepCost& cost, const std::string& axes, const char* of) {
  for (AxisCost& one : cost.traffic) {
    if (one.axes == axes && one.of == of) return one;
  }
  return cost.traffic.emplace_back(AxisCost{.axes = axes, .of = of});
}

/// Activations, and what ops and their redistributions take, by a step on `meta`.
static void run_without_memory(ParallelLlama& llama, const ParallelOptions& options,
                               StepCost& cost) {
  const Shape shape{llama.micro_batch(), options.seq};
  MovementLog movements;
  WorkLog work;
  reset_peak_memory(DeviceKind::meta);
  const MemoryStatistics before = memory_statistics(DeviceKind::meta);
  PurposeScope purpose(Purpose::activations);
  for (int64_t micro_step = 0; micro_step < options.accumulate; ++micro_step) {
    const TensorOptions integers{DType::i64, meta, llama.rows()};
    llama.train(empty(shape, integers), empty(shape, integers), micro_step);
  }
  const MemoryStatistics after = memory_statistics(DeviceKind::meta);
  const auto at = static_cast<size_t>(Purpose::activations);
  cost.memory[at] = after.by_purpose[at].peak - before.by_purpose[at].current;
  cost.work = work.ops;
  for (const Movement& movement : movements.movements) {
    for (const MovementStep& step : movement.steps) {
      AxisCost& over = cost_over(cost, step.axes, "activations");
      over.bytes += step.bytes;
      ++over.collectives;
    }
  }
}

StepCost step_cost(ParallelLlama& llama, const ParallelOptions& options, int ranks_per_host) {
  StepCost cost;
  run_without_memory(llama, options, cost);
  cost.sharding = predicted_bytes(llama.model(), static_cast<int>(options.accumulate));
  auto of = [&](Purpose purpose) -> int64_t& { return cost.memory[static_cast<size_t>(purpose)]; };
  of(Purpose::parameters) = cost.sharding.parameters;
  of(Purpose::gradients) = cost.sharding.gradients;
  of(Purpose::gathered) = cost.sharding.buffers;
  for (const NamedParameter& named : llama.model().named_parameters()) {
    if (!named.parameter->is_trainable()) continue;
    const Tensor& value = named.parameter->value();
    // AdamW's two moments.
    of(Purpose::optimizer) +=
        2 * value.box().shape.product() * static_cast<int64_t>(size_of(value.dtype()));
  }
  int64_t collectives = 0;
  for (const ScheduledAction& action : schedule_of(llama.model())) collectives += action.bytes > 0;
  for (const AxisTraffic& axis : cost.sharding.by_axes) {
    AxisCost& over = cost_over(cost, axis.axes, "parameters and gradients");
    over.bytes += axis.bytes;
    over.collectives += collectives * options.accumulate;
  }
  for (AxisCost& over : cost.traffic) {
    over.crosses_hosts = crosses_hosts(llama.mesh(), over.axes, ranks_per_host);
  }
  return cost;
}

int64_t StepCost::peak_bytes() const {
  return std::accumulate(memory.begin(), memory.end(), int64_t{0});
}

double StepCost::operations() const {
  double sum = 0;
  for (const OpWork& op : work) sum += op.operations;
  return sum;
}

StepSeconds step_seconds(const StepCost& cost, const Machine& machine) {
  StepSeconds seconds;
  for (const OpWork& op : cost.work) {
    seconds.compute += std::max(op.operations / machine.operations,
                                static_cast<double>(op.bytes) / machine.memory_bytes);
  }
  double exposed = 0;
  for (const AxisCost& axis : cost.traffic) {
    const double rate = axis.crosses_hosts ? machine.network_bytes : machine.host_bytes;
    const double took = static_cast<double>(axis.bytes) / rate +
                        static_cast<double>(axis.collectives) * machine.latency;
    seconds.communication += took;
    // Activations are waited for; parameters are gathered ahead.
    const bool waits = std::string_view(axis.of) == "activations" || !machine.overlaps;
    if (waits) exposed += took;
  }
  // AdamW reads value, gradient and moments and writes all but the gradient.
  const auto state = static_cast<double>(cost.memory[static_cast<size_t>(Purpose::optimizer)]);
  seconds.compute += 3.5 * state / machine.memory_bytes;
  seconds.total = exposed + std::max(seconds.compute, seconds.communication - exposed);
  return seconds;
}

}  // namespace weft::cli

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <range/v3/numeric/accumulate.hpp>
#include <ranges>

#include "weft/extend/links.h"
#include "weft/extend/op_log.h"
#include "weft/ops/factories.h"
#include "weft/optimizers.h"
#include "weft/step_cost.h"

namespace weft {

static AxisCost& cost_over(StepCost& cost, const std::string& axes, const char* of) {
  for (AxisCost& one : cost.traffic) {
    if (one.axes == axes && one.of == of) return one;
  }
  return cost.traffic.emplace_back(AxisCost{.axes = axes, .of = of});
}

static int64_t& memory_of(StepCost& cost, Purpose purpose) {
  return cost.memory[static_cast<size_t>(purpose)];
}

/// A step computes on `meta` alone; `materialize` leaves buffers where their values are.
static void use_buffers_on_meta(Module& model) {
  for (const auto& [path, module] : model.named_modules()) {
    for (const NamedBuffer& buffer : module->own_buffers()) {
      const Tensor& value = buffer.value;
      module->set_buffer(buffer.name,
                         empty(value.shape(), {value.dtype(), meta, value.sharding()}));
    }
  }
}

/// Adds what the log has, so many times. Tokens travel to their experts over `expert_axis`.
static void add_movements(const OpLog& log, int64_t times, const std::string& expert_axis,
                          StepCost& cost) {
  for (const Movement& movement : log.movements) {
    const bool dispatches = movement.what == "dispatch_rows";
    const bool is_of_experts = dispatches || movement.what == "combine_rows";
    for (const MovementStep& step : movement.steps) {
      const std::string& axes = is_of_experts && !expert_axis.empty() ? expert_axis : step.axes;
      AxisCost& over = cost_over(cost, axes, is_of_experts ? "tokens of experts" : "activations");
      over.bytes += step.bytes * times;
      over.collectives += times;
      if (!is_of_experts) continue;
      int64_t& forward = dispatches ? cost.experts.dispatch : cost.experts.combine;
      (movement.backward ? cost.experts.backward : forward) += step.bytes * times;
    }
  }
}

/// Adds movements in parts, so many times.
static void add_splits(const OpLog& log, int64_t times, StepCost& cost) {
  for (const SplitMovement& movement : log.splits) {
    auto same = std::ranges::find(cost.splits, movement, &SplitCost::movement);
    if (same == cost.splits.end()) same = cost.splits.insert(same, {movement, 0});
    same->calls += times;
  }
}

/// The most that matrix products take while they compute: copies of operands and result in f32.
static int64_t scratch_bytes(const OpLog& log) {
  int64_t most = 0;
  for (const OpWork& op : log.work) {
    if (op.operations == 0) continue;
    most = std::max(most, op.largest * 4 / static_cast<int64_t>(size_of(op.dtype)));
  }
  return most;
}

/// Activations, and what ops and their redistributions take, by one micro-step on `meta`.
static void add_micro_steps(const StepModel& model, int64_t micro_steps, StepCost& cost) {
  OpLog log;
  reset_peak_memory(DeviceKind::meta);
  const int64_t before = offloaded_activation_bytes();
  {
    const PurposeScope purpose(Purpose::activations);
    model.micro_step();
  }
  cost.disk_bytes += (offloaded_activation_bytes() - before) * micro_steps;
  const auto activations = static_cast<size_t>(Purpose::activations);
  cost.memory[activations] = memory_statistics(DeviceKind::meta).by_purpose[activations].peak;
  add_movements(log, micro_steps, model.expert_axis, cost);
  add_splits(log, micro_steps, cost);
  cost.work = log.work;
  memory_of(cost, Purpose::other) = scratch_bytes(log);
  for (OpWork& op : cost.work) {
    op.calls *= micro_steps;
    op.operations *= static_cast<double>(micro_steps);
    op.bytes *= micro_steps;
  }
}

/// The norm of all gradients: one sum over the mesh.
static void add_norm(const DeviceMesh& mesh, StepCost& cost) {
  const std::vector<Placement> sums(static_cast<size_t>(mesh.ndim()), Partial());
  const Sharding addends(mesh, Placements(std::span<const Placement>(sums)));
  OpLog log;
  empty({}, {DType::f64, meta, addends}).full_tensor();
  add_movements(log, 1, {}, cost);
}

static constexpr auto kElement = static_cast<int64_t>(sizeof(float));

/// The state of the optimizer, and the buffers through which arrays on disk pass.
static void add_optimizer(const StepModel& model, const Offload& offload, const StepOptions& step,
                          StepCost& cost) {
  const Tier& state = step.state;
  int64_t elements = 0, most = 0;
  const std::vector<NamedParameter> all = model.model->named_parameters();
  for (const NamedParameter& named : all) {
    if (!named.parameter->is_trainable()) continue;
    const int64_t own = named.parameter->value().box().shape.product();
    elements += own;
    most = std::max(most, own);
  }
  const auto on_disk = [&](const Tier& tier) { return tier.is_disk() ? kElement : 0; };
  std::unique_ptr<Optimizer> optimizer;
  if (elements > 0) optimizer = step.optimizer ? step.optimizer(all) : std::make_unique<AdamW>(all);
  const int64_t moments = optimizer ? optimizer->state_bytes() : 0;
  std::vector<int64_t> buffers(optimizer ? optimizer->moments().size() : 0, on_disk(state));
  buffers.insert(buffers.begin(), {on_disk(offload.parameters), on_disk(offload.gradients)});
  memory_of(cost, Purpose::optimizer) =
      (state.offloads() ? 0 : moments) + update_buffer_bytes(buffers, most);
  cost.updated_elements = elements;
  // Read and written: the moments and the value; the gradient is read for its norm too.
  if (state.is_disk()) cost.disk_bytes += 2 * moments;
  if (offload.parameters.is_disk()) cost.disk_bytes += 2 * elements * kElement;
  // Each micro-step writes the sums, and each but the first reads them.
  if (offload.gradients.is_disk()) {
    cost.disk_bytes += (2 * int64_t{step.micro_steps} + 1) * elements * kElement;
  }
}

/// Most bytes of gradients that one group of parameters has on this rank.
static int64_t largest_group(const StepModel& model) {
  const auto bytes_of = [](const Module& module) {
    int64_t bytes = 0;
    for (const ParameterPtr& parameter : module.parameters()) {
      bytes += parameter->value().box().shape.product() * kElement;
    }
    return bytes;
  };
  int64_t root = bytes_of(*model.model), most = 0;
  for (const Module* block : model.blocks) {
    most = std::max(most, bytes_of(*block));
    root -= bytes_of(*block);
  }
  return std::max(most, root);
}

/// Adds the memory and traffic of FSDP, and the optimizer's state.
static void add_sharding(const StepModel& model, const Offload& offload, const StepOptions& step,
                         StepCost& cost) {
  const int64_t micro_steps = step.micro_steps;
  cost.sharding = predicted_bytes(*model.model, static_cast<int>(micro_steps));
  memory_of(cost, Purpose::parameters) = cost.sharding.parameters;
  memory_of(cost, Purpose::gradients) = cost.sharding.gradients;
  memory_of(cost, Purpose::gathered) = cost.sharding.buffers;
  add_optimizer(model, offload, step, cost);
  // The norm needs the gradients of one group in memory at a time.
  if (offload.gradients.is_disk()) {
    memory_of(cost, Purpose::activations) =
        std::max(memory_of(cost, Purpose::activations), largest_group(model));
  }
  for (const AxisTraffic& axis : cost.sharding.by_axes) {
    cost_over(cost, axis.axes, "parameters and gradients").bytes += axis.bytes;
  }
  const auto add_steps = [&](const StepKind& kind, int64_t times) {
    for (const ProgramStep& one : schedule_of(*model.model, kind).steps) {
      if (one.bytes == 0) continue;
      if (one.act == ProgramAct::read) {
        if (one.verb == "read") cost.disk_bytes += one.bytes * times;
      } else if (one.act != ProgramAct::write) {
        cost_over(cost, one.axes, "parameters and gradients").collectives += times;
      }
    }
  };
  add_steps({.sync = micro_steps == 1, .updated = true}, 1);
  if (micro_steps > 2) add_steps({.sync = false, .updated = false}, micro_steps - 2);
  if (micro_steps > 1) add_steps({.sync = true, .updated = false}, 1);
}

/// True when ranks that differ along the axes ("dp" or "dp+tp") of the mesh are of several hosts. A
/// part of an axis ("dp by 4") counts as the whole.
static bool crosses_hosts(const DeviceMesh& mesh, std::string_view axes) {
  axes = axes.substr(0, axes.find(" by "));
  std::vector<std::string_view> names;
  for (const auto name : std::views::split(axes, '+')) names.emplace_back(name.begin(), name.end());
  return link_along(mesh.view(names)).crosses_hosts;
}

StepCost step_cost(const std::function<StepModel()>& build, const DeviceMesh& mesh,
                   const FullyShardOptions& sharding, const StepOptions& step) {
  const StepModel model = build();
  shard_units(model, mesh, sharding, step.fine_units);
  model.model->materialize(meta);
  use_buffers_on_meta(*model.model);
  StepCost cost;
  // The schedule that FSDP predicts from is then that of this step.
  add_micro_steps(model, step.micro_steps, cost);
  add_sharding(model, sharding.offload, step, cost);
  add_norm(mesh.root(), cost);
  for (AxisCost& over : cost.traffic) over.crosses_hosts = crosses_hosts(mesh.root(), over.axes);
  return cost;
}

void shard_units(const StepModel& model, const DeviceMesh& mesh, const FullyShardOptions& given,
                 bool fine) {
  FullyShardOptions sharding = given;
  if (!model.expert_axis.empty()) {
    sharding = with_experts(sharding, {model.model.get()}, mesh, model.expert_axis);
  }
  if (fine) {
    for (const Module* block : model.blocks) {
      // The attention and the feed-forward, or whatever in the block has parts.
      for (const auto& [name, part] : block->children()) {
        if (!part->children().empty()) fully_shard(*part, mesh, sharding);
      }
    }
  }
  if (model.units.empty()) {
    for (Module* block : model.blocks) fully_shard(*block, mesh, sharding);
  }
  for (const std::vector<Module*>& unit : model.units) fully_shard(unit, mesh, sharding);
  fully_shard(*model.model, mesh, sharding);
}

int64_t StepCost::peak_bytes() const { return ranges::accumulate(memory, int64_t{0}); }

int64_t StepCost::received(bool across_hosts) const {
  int64_t bytes = 0;
  for (const AxisCost& axis : traffic) {
    if (axis.crosses_hosts == across_hosts) bytes += axis.bytes;
  }
  return bytes;
}

double StepCost::operations() const {
  return ranges::accumulate(work, 0.0, std::plus(), &OpWork::operations);
}

static double bytes_a_second(const Machine& machine, bool crosses_hosts) {
  return crosses_hosts ? machine.network_bytes : machine.host_bytes;
}

/// While one part of the product is computed, the next part arrives, or the one before is sent:
/// all parts but one overlap, for as long as the shorter of both takes.
static double seconds_hidden(const SplitCost& split, const StepCost& cost, const Machine& machine) {
  const SplitMovement& movement = split.movement;
  const bool crosses = std::ranges::any_of(cost.traffic, [&](const AxisCost& axis) {
    return axis.axes == movement.axes && axis.crosses_hosts;
  });
  const double product =
      std::max(movement.operations / machine.operations,
               static_cast<double>(movement.product_bytes) / machine.memory_bytes);
  const double moves = static_cast<double>(movement.bytes) / bytes_a_second(machine, crosses) +
                       movement.parts * machine.latency;
  const double overlapped = static_cast<double>(movement.parts - 1) / movement.parts;
  return static_cast<double>(split.calls) * overlapped * std::min(product, moves);
}

/// Shared experts compute on a second stream while tokens travel, and experts while those of
/// another part do: all parts but one overlap. Gradients take twice the products.
static double seconds_hidden(double dispatch, double combine, double backward, const StepCost& cost,
                             const Machine& machine) {
  const double shared = cost.shared_operations / machine.operations;
  const double products = cost.expert_operations / machine.operations;
  const double parts = static_cast<double>(cost.expert_chunks);
  const auto hidden = [&](double travels, double by_shared, double by_products) {
    const double rest = travels - by_shared;
    return by_shared + (parts - 1) / parts * std::min(rest, by_products);
  };
  return hidden(dispatch + combine, std::min(dispatch, shared), products) +
         hidden(backward, std::min(backward, 2 * shared), 2 * products);
}

StepSeconds step_seconds(const StepCost& cost, const Machine& machine) {
  StepSeconds seconds;
  for (const OpWork& op : cost.work) {
    seconds.compute += std::max(op.operations / machine.operations,
                                static_cast<double>(op.bytes) / machine.memory_bytes);
  }
  double exposed = 0, dispatch = 0, combine = 0, backward = 0;
  for (const AxisCost& axis : cost.traffic) {
    const double took =
        static_cast<double>(axis.bytes) / bytes_a_second(machine, axis.crosses_hosts) +
        static_cast<double>(axis.collectives) * machine.latency;
    seconds.communication += took;
    // Activations and tokens are waited for; parameters are gathered ahead.
    const bool is_ahead = std::string_view(axis.of) == "parameters and gradients";
    if (!is_ahead || !machine.overlaps) exposed += took;
    if (std::string_view(axis.of) != "tokens of experts" || axis.bytes == 0) continue;
    const double of_byte = took / static_cast<double>(axis.bytes);
    dispatch += of_byte * static_cast<double>(cost.experts.dispatch);
    combine += of_byte * static_cast<double>(cost.experts.combine);
    backward += of_byte * static_cast<double>(cost.experts.backward);
  }
  seconds.tokens = dispatch + combine + backward;
  const double hidden_tokens =
      machine.overlaps ? seconds_hidden(dispatch, combine, backward, cost, machine) : 0;
  seconds.tokens_exposed = seconds.tokens - hidden_tokens;
  exposed -= hidden_tokens;
  if (machine.overlaps) {
    for (const SplitCost& split : cost.splits) {
      seconds.hidden_by_parts += seconds_hidden(split, cost, machine);
    }
    exposed -= seconds.hidden_by_parts;
  }
  // AdamW reads value, gradient and moments and writes all but the gradient.
  const auto state = 2.0 * kElement * static_cast<double>(cost.updated_elements);
  seconds.compute += 3.5 * state / machine.memory_bytes;
  // The rank itself copies and hashes what it reads and writes; the disk works meanwhile.
  const auto moved = static_cast<double>(cost.disk_bytes);
  seconds.compute += 2 * moved / machine.memory_bytes;
  seconds.disk = moved / machine.disk_bytes;
  seconds.total = exposed + std::max(seconds.compute, seconds.communication - exposed);
  seconds.total = std::max(seconds.total, seconds.disk);
  return seconds;
}

}  // namespace weft

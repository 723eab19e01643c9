// SPDX-License-Identifier: Apache-2.0
#include "cli/step_cost.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "weft/autograd.h"
#include "weft/error.h"
#include "weft/extend/tape.h"
#include "weft/moe.h"
#include "weft/ops.h"
#include "weft/optimizers.h"

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

namespace {

/// Takes the gradients of a parameter on `meta`, as FSDP's memory would.
class MetaSink final : public GradientSink {
 public:
  explicit MetaSink(Tensor gradient) : gradient_(std::move(gradient)) {}
  Destination destination() override { return {gradient_, std::exchange(accumulate_, true)}; }
  void complete() override {}

 private:
  Tensor gradient_;
  bool accumulate_ = false;
};

}  // namespace

/// The buffers on `meta`, replicated as `fully_shard` has them.
static void use_buffers_on_meta(ParallelTransformer& llama) {
  for (const auto& [path, module] : llama.model().named_modules()) {
    const std::vector<NamedBuffer> buffers = module->own_buffers();
    for (const NamedBuffer& buffer : buffers) {
      const Tensor& value = buffer.value;
      const Sharding sharding = value.is_sharded() ? value.sharding() : Sharding(llama.mesh(), {});
      module->set_buffer(buffer.name, empty(value.shape(), {value.dtype(), meta, sharding}));
    }
  }
}

/// The parameters as forward uses them under FSDP: gathered over all axes but "tp" and, of experts,
/// "ep", on `meta`, in the dtype that is computed in; their gradients addends of a sum.
static void use_gathered(ParallelTransformer& llama, const ParallelOptions& options) {
  PurposeScope purpose(Purpose::gathered);
  const DType dtype = options.dtype == "bf16" ? DType::bf16 : DType::f32;
  const DeviceMesh& mesh = llama.mesh();
  for (const ParameterPtr& parameter : llama.model().parameters()) {
    const Tensor& value = parameter->value();
    Sharding sharding = value.is_sharded() ? value.sharding() : Sharding(mesh, {});
    std::vector<Placement> sums(sharding.placements().begin(), sharding.placements().end());
    for (int axis = 0; axis < mesh.ndim(); ++axis) {
      const bool is_cut = sharding[axis].is_shard();
      if (llama.rows()[axis].is_shard() && !is_cut) sums[static_cast<size_t>(axis)] = Partial();
    }
    parameter->set_value(empty(value.shape(), {dtype, meta, sharding}));
    set_gradient_sink(
        parameter->value(),
        std::make_shared<MetaSink>(empty(
            value.shape(),
            {DType::f32, meta, Sharding(mesh, Placements(std::span<const Placement>(sums)))})));
  }
}

/// Adds what the log has, so many times. Tokens travel to their experts over the axis `ep`.
static void add_movements(const OpLog& log, int64_t times, bool has_ep, StepCost& cost) {
  for (const Movement& movement : log.movements) {
    const bool dispatches = movement.what == "dispatch_rows";
    const bool is_of_experts = dispatches || movement.what == "combine_rows";
    for (const MovementStep& step : movement.steps) {
      AxisCost& over = cost_over(cost, is_of_experts && has_ep ? "ep" : step.axes,
                                 is_of_experts ? "tokens of experts" : "activations");
      over.bytes += step.bytes * times;
      over.collectives += times;
      if (!is_of_experts) continue;
      int64_t& forward = dispatches ? cost.experts.dispatch : cost.experts.combine;
      (movement.backward ? cost.experts.backward : forward) += step.bytes * times;
    }
  }
}

static bool has_experts_axis(const ParallelTransformer& llama) {
  const DeviceMesh& mesh = llama.mesh();
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    if (mesh.axis_name(axis) == "ep") return true;
  }
  return false;
}

/// Plans that the experts of the first ranks compute `imbalance` times the mean of rows.
static void plan_imbalance(TransformerModel& model, double imbalance) {
  for (MoE* layer : moe_layers(model)) layer->experts().plan_imbalance(imbalance);
}

/// The parameters of experts that rest on this rank, and the work of shared experts in forward.
static void add_experts(ParallelTransformer& llama, const TransformerConfig& config,
                        const ParallelOptions& options, StepCost& cost) {
  const auto ranks = static_cast<double>(llama.mesh().size());
  for (MoE* layer : moe_layers(llama.model())) {
    for (const ParameterPtr& parameter : layer->experts().parameters()) {
      const Tensor& value = parameter->value();
      cost.experts.parameters +=
          value.box().shape.product() * static_cast<int64_t>(size_of(value.dtype()));
    }
    cost.shared_operations += 6.0 * static_cast<double>(options.batch * options.seq) / ranks *
                              static_cast<double>(config.dim * config.shared_ffn);
  }
}

/// At most what matrix products take while they compute: copies of operands and result in f32.
static int64_t scratch_bytes(const OpLog& log) {
  int64_t most = 0;
  for (const OpWork& op : log.work) {
    if (op.operations == 0) continue;
    most = std::max(most, op.largest * 4 / static_cast<int64_t>(size_of(op.dtype)));
  }
  return most;
}

/// Activations, and what ops and their redistributions take, by one micro-step on `meta`.
static void add_micro_steps(ParallelTransformer& llama, const ParallelOptions& options,
                            StepCost& cost) {
  const TensorOptions integers{DType::i64, meta, llama.rows()};
  const Shape shape{llama.micro_batch(), options.seq};
  OpLog log;
  reset_peak_memory(DeviceKind::meta);
  {
    PurposeScope purpose(Purpose::activations);
    const Tensor ids = empty(shape, integers), targets = empty(shape, integers);
    const Tensor loss = llama.model().loss(ids, targets);
    llama.share_of_step(loss).backward();
    loss.detach().full_tensor();
  }
  const auto activations = static_cast<size_t>(Purpose::activations);
  cost.memory[activations] = memory_statistics(DeviceKind::meta).by_purpose[activations].peak;
  add_movements(log, options.accumulate, has_experts_axis(llama), cost);
  cost.work = log.work;
  cost.memory[static_cast<size_t>(Purpose::other)] = scratch_bytes(log);
  for (OpWork& op : cost.work) {
    op.calls *= options.accumulate;
    op.operations *= static_cast<double>(options.accumulate);
    op.bytes *= options.accumulate;
  }
}

/// The norm of all gradients: one sum over the mesh.
static void add_norm(ParallelTransformer& llama, StepCost& cost) {
  const DeviceMesh& mesh = llama.mesh();
  const std::vector<Placement> sums(static_cast<size_t>(mesh.ndim()), Partial());
  const Sharding addends(mesh, Placements(std::span<const Placement>(sums)));
  OpLog log;
  empty({}, {DType::f64, meta, addends}).full_tensor();
  add_movements(log, 1, false, cost);
}

/// AdamW's two moments, and the buffers through which arrays on disk pass.
static int64_t optimizer_bytes(ParallelTransformer& llama) {
  int64_t elements = 0, most = 0;
  for (const NamedParameter& named : llama.model().named_parameters()) {
    if (!named.parameter->is_trainable()) continue;
    const int64_t own = named.parameter->value().box().shape.product();
    elements += own;
    most = std::max(most, own);
  }
  constexpr auto kElement = static_cast<int64_t>(sizeof(float));
  const auto on_disk = [&](std::string_view what) {
    return llama.tier(what).is_disk() ? kElement : 0;
  };
  const int64_t moments = llama.tier("state").offloads() ? 0 : 2 * elements * kElement;
  return moments + update_buffer_bytes({on_disk("parameters"), on_disk("gradients"),
                                        on_disk("state"), on_disk("state")},
                                       most);
}

/// Most bytes of gradients that one group of parameters has on this rank.
static int64_t largest_group(ParallelTransformer& llama) {
  const auto bytes_of = [](const Module& module) {
    int64_t bytes = 0;
    for (const ParameterPtr& parameter : module.parameters()) {
      bytes += parameter->value().box().shape.product() * static_cast<int64_t>(sizeof(float));
    }
    return bytes;
  };
  int64_t root = bytes_of(llama.model()), most = 0;
  for (const Module* block : llama.model().blocks()) {
    most = std::max(most, bytes_of(*block));
    root -= bytes_of(*block);
  }
  return std::max(most, root);
}

/// Adds the memory and traffic of FSDP, and the optimizer's state.
static void add_sharding(ParallelTransformer& llama, const ParallelOptions& options,
                         StepCost& cost) {
  cost.sharding = predicted_bytes(llama.model(), static_cast<int>(options.accumulate));
  auto of = [&](Purpose purpose) -> int64_t& { return cost.memory[static_cast<size_t>(purpose)]; };
  of(Purpose::parameters) = cost.sharding.parameters;
  of(Purpose::gradients) = cost.sharding.gradients;
  of(Purpose::gathered) = cost.sharding.buffers;
  of(Purpose::optimizer) = optimizer_bytes(llama);
  // The norm needs the gradients of one group in memory at a time.
  if (llama.tier("gradients").is_disk()) {
    of(Purpose::activations) = std::max(of(Purpose::activations), largest_group(llama));
  }
  for (const AxisTraffic& axis : cost.sharding.by_axes) {
    cost_over(cost, axis.axes, "parameters and gradients").bytes += axis.bytes;
  }
  const auto add_collectives = [&](const StepKind& kind, int64_t times) {
    for (const ScheduledAction& action : schedule_of(llama.model(), kind)) {
      if (action.bytes == 0) continue;
      cost_over(cost, action.axes, "parameters and gradients").collectives += times;
    }
  };
  const int64_t micro_steps = options.accumulate;
  add_collectives({.sync = micro_steps == 1, .updated = true}, 1);
  if (micro_steps > 2) add_collectives({.sync = false, .updated = false}, micro_steps - 2);
  if (micro_steps > 1) add_collectives({.sync = true, .updated = false}, 1);
}

/// The cost of a model, by the model itself.
static StepCost measured_cost(const Communicator& world, const TransformerConfig& config,
                              const ParallelOptions& options) {
  StepCost cost;
  ParallelTransformer gathered(world, config, options);
  plan_imbalance(gathered.model(), options.imbalance);
  use_buffers_on_meta(gathered);
  use_gathered(gathered, options);
  add_micro_steps(gathered, options, cost);
  ParallelTransformer sharded(world, config, options);
  sharded.shard();
  add_sharding(sharded, options, cost);
  add_norm(sharded, cost);
  add_experts(sharded, config, options, cost);
  return cost;
}

/// All numbers of a cost that a further layer changes, and in `operations` those that are not
/// whole.
static std::vector<int64_t*> numbers_of(StepCost& cost, std::vector<double*>& operations) {
  FullyShardBytes& sharding = cost.sharding;
  std::vector<int64_t*> numbers{&sharding.parameters, &sharding.gradients, &sharding.buffers,
                                &sharding.received, &sharding.copied};
  ExpertBytes& experts = cost.experts;
  numbers.insert(numbers.end(),
                 {&experts.parameters, &experts.dispatch, &experts.combine, &experts.backward});
  operations.push_back(&cost.shared_operations);
  for (int64_t& bytes : cost.memory) numbers.push_back(&bytes);
  for (AxisTraffic& axis : sharding.by_axes) numbers.push_back(&axis.bytes);
  for (AxisCost& axis : cost.traffic) {
    numbers.insert(numbers.end(), {&axis.bytes, &axis.collectives});
  }
  for (OpWork& op : cost.work) {
    numbers.insert(numbers.end(), {&op.calls, &op.bytes, &op.largest});
    operations.push_back(&op.operations);
  }
  return numbers;
}

/// Continues the costs of models of n, n + 2 and n + 4 layers to one of n + 4 + 2 x `pairs`; false,
/// with `c` unchanged, where they do not grow evenly.
static bool extrapolate(StepCost& a, StepCost& b, StepCost& c, int64_t pairs) {
  std::vector<double*> first_operations, before, operations;
  const auto first = numbers_of(a, first_operations), second = numbers_of(b, before),
             third = numbers_of(c, operations);
  if (first.size() != third.size() || second.size() != third.size()) return false;
  for (size_t i = 0; i < third.size(); ++i) {
    if (*third[i] - *second[i] != *second[i] - *first[i]) return false;
  }
  // The most activations at once is the greater of what one layer takes and what all layers keep:
  // it grows evenly from where the second is greater.
  const auto activations = static_cast<size_t>(Purpose::activations);
  if (c.memory[activations] == b.memory[activations]) return false;
  for (size_t i = 0; i < third.size(); ++i) *third[i] += (*third[i] - *second[i]) * pairs;
  for (size_t i = 0; i < operations.size(); ++i) {
    *operations[i] += (*operations[i] - *before[i]) * static_cast<double>(pairs);
  }
  return true;
}

StepCost step_cost(const Communicator& world, const TransformerConfig& config,
                   const ParallelOptions& options, int ranks_per_host) {
  const auto cost_of = [&](int64_t layers) {
    TransformerConfig part = config;
    part.layers = layers;
    if (!part.dense.empty()) part.dense.resize(static_cast<size_t>(layers));
    return measured_cost(world, part, options);
  };
  StepCost cost;
  // Layers that save different results do not grow evenly.
  bool is_known =
      std::ranges::adjacent_find(options.blocks, std::not_equal_to<>()) != options.blocks.end();
  if (is_known) cost = cost_of(config.layers);
  // Layers in pairs: selective recomputation leaves out every second.
  for (int64_t few = 4 + config.layers % 2; few + 4 < config.layers && !is_known; few *= 2) {
    few += (config.layers - few) % 2;
    StepCost a = cost_of(few), b = cost_of(few + 2);
    cost = cost_of(few + 4);
    is_known = extrapolate(a, b, cost, (config.layers - few - 4) / 2);
  }
  if (!is_known) cost = cost_of(config.layers);
  const DeviceMesh mesh(world, parsed_axes(options.mesh));
  for (AxisCost& over : cost.traffic) {
    over.crosses_hosts = crosses_hosts(mesh, over.axes, ranks_per_host);
  }
  return cost;
}

std::string step_schedule(const Communicator& world, TransformerConfig config,
                          const ParallelOptions& options) {
  constexpr int64_t kMostLayers = 128;
  std::string text;
  if (config.layers > kMostLayers) {
    text = concat("schedule of ", kMostLayers, " layers; the model has ", config.layers,
                  ", all alike\n");
    config.layers = kMostLayers;
  }
  ParallelTransformer llama(world, config, options);
  llama.shard();
  return text + explain_schedule(llama.model());
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
  double exposed = 0, dispatch = 0;
  for (const AxisCost& axis : cost.traffic) {
    const double rate = axis.crosses_hosts ? machine.network_bytes : machine.host_bytes;
    const double took = static_cast<double>(axis.bytes) / rate +
                        static_cast<double>(axis.collectives) * machine.latency;
    seconds.communication += took;
    // Activations and tokens are waited for; parameters are gathered ahead.
    const bool is_ahead = std::string_view(axis.of) == "parameters and gradients";
    if (!is_ahead || !machine.overlaps) exposed += took;
    if (std::string_view(axis.of) != "tokens of experts" || axis.bytes == 0) continue;
    dispatch += took * static_cast<double>(cost.experts.dispatch) / static_cast<double>(axis.bytes);
  }
  // Shared experts compute during the dispatch.
  if (machine.overlaps) exposed -= std::min(dispatch, cost.shared_operations / machine.operations);
  // AdamW reads value, gradient and moments and writes all but the gradient.
  const auto state = static_cast<double>(cost.memory[static_cast<size_t>(Purpose::optimizer)]);
  seconds.compute += 3.5 * state / machine.memory_bytes;
  seconds.total = exposed + std::max(seconds.compute, seconds.communication - exposed);
  return seconds;
}

}  // namespace weft::cli

// SPDX-License-Identifier: Apache-2.0
#include "cli/step_cost.h"

#include <algorithm>
#include <memory>

#include "weft/autograd.h"
#include "weft/error.h"
#include "weft/moe.h"
#include "weft/ops.h"

namespace weft::cli {

/// True when ranks that differ along the axes ("dp" or "dp+tp") of the mesh are of several hosts.
static bool crosses_hosts(const DeviceMesh& mesh, const std::string& axes, int ranks_per_host) {
  int64_t stride = 1, span = 1;
  for (int axis = mesh.ndim() - 1; axis >= 0; --axis) {
    const std::string name = concat('+', mesh.axis_name(axis), '+');
    if (concat('+', axes, '+').find(name) != name.npos) span = stride * mesh.axis_size(axis);
    stride *= mesh.axis_size(axis);
  }
  return span > ranks_per_host;
}

/// The parameters of experts that rest on this rank, and the work of experts in forward.
static void add_experts(ParallelTransformer& llama, const TransformerConfig& config,
                        const ParallelOptions& options, StepCost& cost) {
  const auto ranks = static_cast<double>(llama.mesh().size());
  for (MoE* layer : moe_layers(llama.model())) {
    for (const ParameterPtr& parameter : layer->experts().parameters()) {
      const Tensor& value = parameter->value();
      cost.experts.parameters +=
          value.box().shape.product() * static_cast<int64_t>(size_of(value.dtype()));
    }
    const double rows = static_cast<double>(options.batch * options.seq) / ranks;
    cost.shared_operations += 6 * rows * static_cast<double>(config.dim * config.shared_ffn);
    cost.expert_operations +=
        6 * rows * options.imbalance *
        static_cast<double>(config.experts_per_token * config.dim * config.expert_ffn);
  }
}

/// A micro-step as training takes it, on `meta`.
static void take_micro_step(ParallelTransformer& llama, const ParallelOptions& options) {
  const TensorOptions integers{DType::i64, meta, llama.rows()};
  const Shape shape{llama.micro_batch(), options.seq};
  const Tensor ids = empty(shape, integers), targets = empty(shape, integers);
  const Tensor loss = llama.model().loss(ids, targets);
  llama.share_of_step(loss).backward();
  loss.detach().full_tensor();
}

/// The cost of a model, by the model itself.
static StepCost measured_cost(const Communicator& world, const TransformerConfig& config,
                              const ParallelOptions& options) {
  const ParallelTransformer first(world, config, options);
  std::shared_ptr<ParallelTransformer> last;
  const auto build = [&] {
    const auto llama = std::make_shared<ParallelTransformer>(world, config, options);
    TransformerModel& model = llama->model();
    for (MoE* layer : moe_layers(model)) layer->experts().plan_imbalance(options.imbalance);
    last = llama;
    return StepModel{.model = std::shared_ptr<Module>(llama, &model),
                     .blocks = model.blocks(),
                     .units = model.units(),
                     .expert_axis = llama->expert_axis(),
                     .micro_step = [llama, options] { take_micro_step(*llama, options); }};
  };
  StepCost cost = weft::step_cost(build, first.data(), first.sharding(),
                                  {.micro_steps = static_cast<int>(options.accumulate),
                                   .state = options.choice.state,
                                   .fine_units = options.choice.fine_units});
  add_experts(*last, config, options, cost);
  cost.expert_chunks = std::min(options.expert_chunks, options.seq);
  return cost;
}

/// All numbers of a cost that a further layer changes, and in `operations` those that are not
/// whole.
static std::vector<int64_t*> numbers_of(StepCost& cost, std::vector<double*>& operations) {
  FullyShardBytes& sharding = cost.sharding;
  std::vector<int64_t*> numbers{&sharding.parameters,  &sharding.gradients, &sharding.buffers,
                                &sharding.received,    &sharding.copied,    &cost.disk_bytes,
                                &cost.updated_elements};
  ExpertBytes& experts = cost.experts;
  numbers.insert(numbers.end(),
                 {&experts.parameters, &experts.dispatch, &experts.combine, &experts.backward});
  operations.insert(operations.end(), {&cost.shared_operations, &cost.expert_operations});
  for (int64_t& bytes : cost.memory) numbers.push_back(&bytes);
  for (AxisTraffic& axis : sharding.by_axes) numbers.push_back(&axis.bytes);
  for (SplitCost& split : cost.splits) numbers.push_back(&split.calls);
  for (AxisCost& axis : cost.traffic) {
    numbers.insert(numbers.end(), {&axis.bytes, &axis.collectives});
  }
  for (OpWork& op : cost.work) {
    numbers.insert(numbers.end(), {&op.calls, &op.bytes, &op.largest});
    operations.push_back(&op.operations);
  }
  return numbers;
}

/// Continues the costs of models of n, n + p and n + 2p layers to one of n + (2 + `periods`) p;
/// false, with `c` unchanged, where they do not grow evenly.
static bool extrapolate(StepCost& a, StepCost& b, StepCost& c, int64_t periods) {
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
  for (size_t i = 0; i < third.size(); ++i) *third[i] += (*third[i] - *second[i]) * periods;
  for (size_t i = 0; i < operations.size(); ++i) {
    *operations[i] += (*operations[i] - *before[i]) * static_cast<double>(periods);
  }
  return true;
}

/// The model without its layers from number `layers` on.
static TransformerConfig with_layers(TransformerConfig config, int64_t layers) {
  config.layers = layers;
  for (auto* flags : {&config.windowed, &config.unrotated, &config.dense}) {
    if (!flags->empty()) flags->resize(static_cast<size_t>(layers));
  }
  return config;
}

/// The number of layers after which the kinds of layers from `first` on repeat, an even one because
/// selective recomputation leaves out every second; 0 where they do not repeat three times.
static int64_t period_of_layers(const TransformerConfig& config, int64_t first) {
  const auto repeat_after = [&](int64_t period) {
    for (const auto* flags : {&config.windowed, &config.unrotated, &config.dense}) {
      if (flags->empty()) continue;
      if (!std::equal(flags->begin() + first + period, flags->end(), flags->begin() + first)) {
        return false;
      }
    }
    return true;
  };
  for (int64_t period = 2; first + 2 * period < config.layers; period += 2) {
    if (repeat_after(period)) return period;
  }
  return 0;
}

StepCost step_cost(const Communicator& world, const TransformerConfig& config,
                   const ParallelOptions& options, int ranks_per_host) {
  const auto cost_of = [&](int64_t layers) {
    return measured_cost(world, with_layers(config, layers), options);
  };
  StepCost cost;
  // Layers that save different results do not grow evenly.
  bool is_known = std::ranges::adjacent_find(options.choice.blocks, std::not_equal_to<>()) !=
                  options.choice.blocks.end();
  if (is_known) cost = cost_of(config.layers);
  for (int64_t first = 4; first < config.layers && !is_known; first *= 2) {
    const int64_t period = period_of_layers(config, first);
    if (period == 0) continue;
    const int64_t few = first + (config.layers - first) % period;
    if (few + 2 * period >= config.layers) continue;
    StepCost a = cost_of(few), b = cost_of(few + period);
    cost = cost_of(few + 2 * period);
    is_known = extrapolate(a, b, cost, (config.layers - few) / period - 2);
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
    text = concat("schedule of the first ", kMostLayers, " layers; the model has ", config.layers,
                  "\n");
    config = with_layers(config, kMostLayers);
  }
  ParallelTransformer llama(world, config, options);
  llama.shard();
  return text + explain_schedule(llama.model());
}

}  // namespace weft::cli

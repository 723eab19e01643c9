// SPDX-License-Identifier: Apache-2.0
#include "cli/step_cost.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <ranges>
#include <utility>

#include "cli/pipeline.h"
#include "cli/pipeline_cost.h"
#include "weft/autograd.h"
#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/moe.h"
#include "weft/ops.h"
#include "weft/optimizer_named.h"

namespace weft::cli {

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

/// The model of a stage, with a block more at each end that it lacks.
static TransformerConfig with_ends(TransformerConfig config, const StagePart& part) {
  const auto extend = [&](auto& flags) {
    if (flags.empty()) return;
    if (!part.first) flags.insert(flags.begin(), flags.front());
    if (!part.last) flags.push_back(flags.back());
  };
  extend(config.windowed), extend(config.unrotated), extend(config.dense);
  config.layers += (part.first ? 0 : 1) + (part.last ? 0 : 1);
  return config;
}

/// The cost of a model, or of a stage, by the model itself.
static StepCost measured_cost(const Communicator& world, const TransformerConfig& config,
                              const ParallelOptions& options, const StagePart& part) {
  const TransformerConfig all = with_ends(config, part);
  const ParallelTransformer first(world, all, options, part);
  std::shared_ptr<ParallelTransformer> last;
  const auto build = [&] {
    const auto llama = std::make_shared<ParallelTransformer>(world, all, options, part);
    for (MoE* layer : moe_layers(llama->model())) {
      layer->experts().plan_imbalance(options.imbalance);
    }
    last = llama;
    StepModel model = llama->step_model(llama);
    // Runs a micro-step as training does, on `meta`.
    model.micro_step = [llama, options, seq = options.seq] {
      if (!llama->part().is_whole()) return differentiate_stage(*llama, options);
      const TensorOptions integers{DType::i64, meta, llama->rows()};
      const Shape shape{llama->micro_batch(), seq};
      llama->differentiate(empty(shape, integers), empty(shape, integers)).full_tensor();
    };
    return model;
  };
  const auto optimizer = [&](std::vector<NamedParameter> parameters) {
    return optimizer_named(options.optimizer, std::move(parameters), {});
  };
  StepCost cost = weft::step_cost(build, first.data(), first.sharding(),
                                  {.micro_steps = static_cast<int>(options.accumulate),
                                   .state = options.choice.state,
                                   .optimizer = optimizer,
                                   .fine_units = options.choice.fine_units});
  if (part.is_stage) reduce_once(last->model(), options.accumulate, cost);
  add_experts(*last, config, options, cost);
  cost.expert_chunks = std::min(options.expert_chunks, options.seq);
  return cost;
}

StepCost step_cost(const Communicator& world, const TransformerConfig& config,
                   const ParallelOptions& options, const StagePart& part) {
  // Layers that save different results do not grow evenly.
  const auto& blocks = options.choice.blocks;
  const bool is_even = std::ranges::adjacent_find(blocks, std::not_equal_to<>()) == blocks.end();
  const auto cost_of = [&](const TransformerConfig& few) {
    return measured_cost(world, few, options, part);
  };
  return is_even ? cost_of_layers(config, cost_of) : cost_of(config);
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

StepSeconds predicted_step(const Machine& machine, const TransformerConfig& config,
                           const ParallelOptions& options, int ranks, int ranks_per_host) {
  const ContextSetting<&Context::random> random(Context::current().random);
  const Communicator world = fake_world(0, ranks, ranks_per_host, !machine.overlaps);
  const StepCost cost = step_cost(world, config, options);
  return step_seconds(cost, machine);
}

int64_t bytes_from(std::string_view flag, const std::string& text) {
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1},      {"B", 1},        {"kB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  double number = 0;
  const char* last = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), last, number);
  const std::string_view unit(stop, static_cast<size_t>(last - stop));
  const auto known = std::ranges::find(kUnits, unit, [](const auto& one) { return one.first; });
  const bool good = error == std::errc() && known != std::end(kUnits);
  const double bytes = good ? number * known->second : 0;
  if (!good || !(bytes >= 1) || bytes > 0x1p62) {
    fail(flag, " is ", in_quotes(text), ", expected bytes such as 2GiB, 512MiB or 1000000");
  }
  return static_cast<int64_t>(bytes);
}

std::optional<int64_t> budget_of(const std::string& choice) {
  static constexpr std::string_view known[] = {"none", "full", "selective", "op"};
  static constexpr std::string_view budget = "budget=";
  if (choice.starts_with(budget)) {
    return bytes_from("--activation-checkpointing budget", choice.substr(budget.size()));
  }
  if (std::ranges::find(known, choice) == std::end(known)) {
    fail("--activation-checkpointing is ", in_quotes(choice),
         ", expected none, full, selective, op or budget=BYTES");
  }
  return {};
}

bool is_planned(const ParallelOptions& options) {
  return !options.memory.empty() || budget_of(options.recompute);
}

MemoryPlan planned(const TransformerConfig& config, const ParallelOptions& options, int ranks,
                   int ranks_per_host, const Machine& machine) {
  const std::optional<int64_t> budget = budget_of(options.recompute);
  MemoryBudget allowed{budget.value_or(INT64_MAX), options.free.directory()};
  if (!options.memory.empty()) {
    allowed.bytes = std::min(allowed.bytes, bytes_from("--memory", options.memory));
  }
  const auto cost = [&](const StepChoice& choice) {
    const Communicator world = fake_world(0, ranks, ranks_per_host, !machine.overlaps);
    ParallelOptions chosen = options;
    chosen.choice = choice;
    if (pipeline_ranks(options) > 0) {
      return pipeline_cost(config, chosen, -1, ranks, ranks_per_host, machine).cost;
    }
    return step_cost(world, config, chosen);
  };
  const bool has_memory = !options.memory.empty();
  std::string cure = "use more ranks";
  if (options.accumulate * ranks < options.batch) cure += ", a higher --accumulate";
  if (has_memory && !budget && options.recompute != "none") {
    cure += ", --activation-checkpointing none, so that --memory chooses";
  }
  if (options.dtype == "f32") cure += ", --dtype bf16";
  if (!options.free.offloads()) {
    cure += has_memory ? ", --offload auto=disk:DIR" : ", --memory with --offload auto=disk:DIR";
  }
  // A choice of the user's stays.
  const MemoryPlanOptions may{.policies = budget || options.recompute == "none",
                              .schedule = has_memory,
                              .what = has_memory ? "--memory" : "--activation-checkpointing budget",
                              .cure = cure};
  return weft::plan_memory(cost, options.choice, static_cast<size_t>(config.layers), allowed,
                           machine, may);
}

}  // namespace weft::cli

// SPDX-License-Identifier: Apache-2.0
#include "cli/step_cost.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <memory>
#include <ranges>
#include <thread>
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
#include "weft/ranks.h"

namespace weft::cli {

/// Seconds of one call, of as many as fit into a fifth of a second.
template <class F> static double seconds_of(const F& call) {
  using Clock = std::chrono::steady_clock;
  call();
  int calls = 0;
  const auto began = Clock::now();
  std::chrono::duration<double> took{0};
  while (took.count() < 0.2) {
    call();
    ++calls;
    took = Clock::now() - began;
  }
  return took.count() / calls;
}

/// The machine this runs on, shared by the ranks: each measures while the others do.
static Machine measured_machine(const std::string& dtype, int ranks) {
  Machine machine{.name = "this machine", .latency = 5e-6};
  // More ranks than cores take turns; measuring with all of them would measure the same.
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (ranks > 8 * cores) {
    warn(ranks, " ranks would share the ", cores,
         " cores of this machine; say --machine h100 for a cluster");
  }
  const int busy = std::min(ranks, cores);
  run_ranks(busy, [&](Communicator world) {
    NoGrad no_grad;
    const TensorOptions options{.dtype = dtype_named(dtype)};
    constexpr int64_t kRows = 512, kWidth = 1024, kElements = 1 << 22;
    const Tensor x = zeros({kRows, kWidth}, options), w = zeros({kWidth, kWidth}, options);
    const Tensor a = zeros({kElements}, options), b = zeros({kElements}, options);
    world.barrier();
    const double product = seconds_of([&] { linear(x, w); });
    world.barrier();
    const double sum = seconds_of([&] { add(a, b); });
    if (world.rank() != 0) return;
    machine.operations = 2.0 * kRows * kWidth * kWidth / product;
    machine.memory_bytes = 3.0 * kElements * static_cast<double>(size_of(options.dtype)) / sum;
  });
  const double share = static_cast<double>(busy) / ranks;
  machine.operations *= share;
  machine.memory_bytes *= share;
  // Ranks that are threads read each other's memory.
  machine.host_bytes = machine.network_bytes = machine.memory_bytes / 2;
  return machine;
}

Machine machine_named(const std::string& name, const std::string& dtype, int ranks) {
  if (name == "this") return measured_machine(dtype, ranks);
  // Dense products reach about 70 % of the peak, memory and links about 80 %; between hosts, eight
  // 400 Gbit/s ports for eight ranks.
  const bool narrow = dtype != "f32";
  if (name == "h100")
    return {"h100", narrow ? 690e12 : 45e12, 2.7e12, 360e9, 40e9, 80e9, 2e-5, true};
  if (name == "h200")
    return {"h200", narrow ? 690e12 : 45e12, 3.8e12, 360e9, 40e9, 141e9, 2e-5, true};
  if (name == "a100")
    return {"a100", narrow ? 220e12 : 14e12, 1.6e12, 240e9, 20e9, 80e9, 2e-5, true};
  fail("--machine is ", in_quotes(name), ", expected this, h100, h200 or a100");
}

namespace {

/// A GPU: its data sheet's operations a second, in units of 1e12, and the machine that has it.
struct Gpu {
  /// A part of the names of such devices.
  std::string_view part;
  double bf16;
  double f32;
  /// 0 where it lacks products of that dtype.
  double f8;
  /// None for cards whose links are other ones.
  const char* machine = nullptr;
};

}  // namespace

/// NVIDIA's data sheets of these GPUs, without sparsity; the first whose part is found counts.
/// A GH200 computes as an H100 SXM does; its memory and links are others.
static constexpr Gpu kGpus[] = {
    {"GH200", 989.4, 66.9, 1978.9},        {"H100 PCIe", 756, 51.2, 1513},
    {"H100 NVL", 835.5, 60, 1671},         {"H200 NVL", 835.5, 60, 1671},
    {"H100", 989.4, 66.9, 1978.9, "h100"}, {"H200", 989.4, 66.9, 1978.9, "h200"},
    {"A100-SXM", 312, 19.5, 0, "a100"},    {"A100", 312, 19.5, 0},
};

static const Gpu* gpu_named(std::string_view device_name) {
  const auto* found = std::ranges::find_if(
      kGpus, [&](const Gpu& gpu) { return device_name.find(gpu.part) != device_name.npos; });
  return found == std::end(kGpus) ? nullptr : found;
}

std::optional<Machine> machine_of_device(std::string_view device_name, const std::string& dtype) {
  const Gpu* gpu = gpu_named(device_name);
  if (!gpu || !gpu->machine) return {};
  return machine_named(gpu->machine, dtype, 1);
}

std::optional<double> peak_operations(std::string_view device_name,
                                      const ParallelOptions& options) {
  const Gpu* gpu = gpu_named(device_name);
  if (!gpu) return {};
  if (options.float8 && gpu->f8 > 0) return 1e12 * gpu->f8;
  return 1e12 * (options.dtype != "f32" ? gpu->bf16 : gpu->f32);
}

double needed_operations_a_token(const TransformerConfig& config, int64_t sequence) {
  const double others = training_operations_a_token(config, 0);
  const double of_key = training_operations_a_token(config, 1) - others;
  double keys = 0;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const int64_t window = config.has_window(layer) ? std::min(config.window, sequence) : sequence;
    // Sum over all queries of the keys on one side of each.
    const double side = static_cast<double>(window - 1) *
                        (static_cast<double>(sequence) - static_cast<double>(window) / 2);
    keys += 1 + (config.causal ? 1 : 2) * side / static_cast<double>(sequence);
  }
  return others + of_key * keys / static_cast<double>(config.layers);
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
  const auto kinds = {&config.windowed, &config.unrotated, &config.dense};
  const auto repeat_after = [&](int64_t period) {
    return std::ranges::all_of(kinds, [&](const auto* flags) {
      return flags->empty() ||
             std::equal(flags->begin() + first + period, flags->end(), flags->begin() + first);
    });
  };
  for (int64_t period = 2; first + 2 * period < config.layers; period += 2) {
    if (repeat_after(period)) return period;
  }
  return 0;
}

StepCost step_cost(const Communicator& world, const TransformerConfig& config,
                   const ParallelOptions& options, const StagePart& part) {
  const auto cost_of = [&](int64_t layers) {
    return measured_cost(world, with_layers(config, layers), options, part);
  };
  // Layers that save different results do not grow evenly.
  const auto& blocks = options.choice.blocks;
  const bool is_even = std::ranges::adjacent_find(blocks, std::not_equal_to<>()) == blocks.end();
  for (int64_t first = 4; is_even && first < config.layers; first *= 2) {
    const int64_t period = period_of_layers(config, first);
    if (period == 0) continue;
    const int64_t few = first + (config.layers - first) % period;
    if (few + 2 * period >= config.layers) continue;
    StepCost a = cost_of(few), b = cost_of(few + period), c = cost_of(few + 2 * period);
    if (extrapolate(a, b, c, (config.layers - few) / period - 2)) return c;
  }
  return cost_of(config.layers);
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

// SPDX-License-Identifier: Apache-2.0
#include "cli/parallel_transformer.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <ranges>

#include "cli/numbers.h"
#include "cli/step_cost.h"
#include "weft/error.h"
#include "weft/extend/split_products.h"
#include "weft/layers.h"
#include "weft/ops.h"
#include "weft/optimizer_named.h"
#include "weft/pipelined_transformer.h"
#include "weft/tensor_parallel.h"
#include "weft/trace.h"
#include "weft/transformer_stage.h"

namespace weft::cli {

static constexpr size_t kMostAxes = 8;  // limit of DeviceMesh

static void add_wire_flags(CLI::App& command, ParallelOptions& o) {
  command
      .add_option("--gather-dtype", o.gather_dtype,
                  "Format of gathers: int8 or fp8, with a scale for each 256 elements, bf16 or f32 "
                  "(default: that of --dtype)")
      ->check(CLI::IsMember({"int8", "fp8", "bf16", "f32"}));
  command
      .add_option("--gradient-dtype", o.gradient_dtype,
                  "Format of reduce-scatters: int8, with scales, or bf16, both rounded "
                  "stochastically, or f32 (default)")
      ->check(CLI::IsMember({"int8", "bf16", "f32"}));
  command.add_flag("--float8", o.float8,
                   "Compute linear layers, but not the head, in 8 bits with dynamic scales");
}

std::array<std::pair<std::string_view, Tier*>, 5> tiers_of(ParallelOptions& o) {
  return {{{"parameters", &o.choice.offload.parameters},
           {"gradients", &o.choice.offload.gradients},
           {"state", &o.choice.state},
           {"activations", &o.choice.offload.activations},
           {"auto", &o.free}}};
}

/// Sets the tier that an item of --offload states.
static void set_tier(ParallelOptions& o, std::string_view item) {
  const size_t equals = std::min(item.find('='), item.size());
  const std::string_view name = item.substr(0, equals);
  for (const auto& [what, tier] : tiers_of(o)) {
    if (what != name) continue;
    *tier = equals == item.size()
                ? Tier(true)
                : Tier::named(concat("--offload ", name), item.substr(equals + 1));
    return;
  }
  fail("--offload: item is ", in_quotes(item),
       ", expected parameters, gradients, state, activations or auto, and a tier behind it, as in "
       "state=disk:DIR");
}

void check_offload(ParallelOptions o, Device device) {
  for (const auto& [what, tier] : tiers_of(o)) {
    if (!tier->is_host() || device.kind == DeviceKind::cuda) continue;
    fail("--offload: ", what, " rest on the host while ranks compute on ", device,
         ", expected a GPU; write ", what, "=disk:DIR");
  }
}

static void add_offload_flag(CLI::App& command, ParallelOptions& o) {
  const auto offload = [&o](const std::vector<std::string>& items) {
    for (const std::string& item : items) set_tier(o, item);
  };
  command
      .add_option_function<std::vector<std::string>>(
          "--offload", offload,
          "Tiers on which parameters, gradients, the optimizer's state and what recomputed blocks "
          "save (activations) rest between uses, e.g. state=disk:DIR,parameters=host: host (the "
          "default) is pinned memory while GPUs compute, disk:DIR are files without a name "
          "in DIR; auto=disk:DIR lets --memory choose what rests there")
      ->type_name("WHAT[=TIER],...")
      ->delimiter(',');
}

void add_optimizer_flag(CLI::App& command, std::string& optimizer) {
  add_shown(command, "--optimizer", optimizer,
            "Rule of the updates; muon: AdamW for embeddings, head and vectors")
      ->check(CLI::IsMember(optimizer_names()));
}

void add_parallel_flags(CLI::App& command, ParallelOptions& o) {
  add_named(command, "--model", o.model, "MODEL",
            "tiny, small or a Hugging Face config.json (default: that of --init or --resume, "
            "or tiny)");
  add_named(command, "--mesh", o.mesh, "AXIS=N,...",
            "Axes of the ranks, e.g. dp=4 or replicate=2,shard=2,tp=2 (default: dp over all "
            "ranks); tp is tensor parallelism, pp the stages of a pipeline, cp cuts sequences, the "
            "others carry rows of the batch, and ep also cuts the experts of a model that has "
            "them, e.g. shard=2,ep=4; names like another kind of parallelism (sp, fsdp, TP) are "
            "refused");
  add_shown(command, "--strategy", o.strategy,
            "full_shard, zero2, zero1, ddp or hsdp (of two axes: replicate, shard)");
  add_shown(
      command, "--dtype", o.dtype,
      "f32, or bf16 or f16: compute and gather in it over f32 weights, reduce in f32; with f16 "
      "losses are scaled, and steps whose gradients overflow are skipped")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  add_wire_flags(command, o);
  add_adapter_flags(command, o.adapters);
  add_shown(command, "--activation-checkpointing", o.recompute,
            "none; full: every block runs again in backward; selective: every second; op: "
            "every block, without its matrix products and attention, but with those of "
            "--float8 and the traffic of experts; budget=2GiB: as little as fits a rank's "
            "memory");
  add_named(command, "--memory", o.memory, "BYTES",
            "Bytes of a rank, such as 2GiB: choose the fastest schedule and recomputation "
            "that are predicted to fit");
  add_number(command, "--imbalance", o.imbalance,
             "Predict that the experts of the first rank compute this many "
             "times the mean of rows over the axis ep",
             1);
  add_offload_flag(command, o);
  command.add_flag_function(
      "--sequence-parallel,!--no-sequence-parallel",
      [&o](int64_t count) { o.sequence_parallel = count > 0; },
      "Split the sequence over the ranks of tp between products (default: with an axis tp)");
  takes_whole(
      command.add_flag("--async-tp{4}", o.async_tp,
                       "Split products of tensor parallelism into 4 parts (--async-tp=N: N), of "
                       "which one moves while another is computed"),
      1, kMostProductParts);
  // If the flag is missing, add_flag has made it 0.
  o.async_tp = 1;
  add_whole(command, "--expert-chunks", o.expert_chunks,
            "Parts of the sequences that go through the experts one after "
            "the other: on GPUs tokens of one part travel while those of "
            "another are computed",
            1);
  command.add_flag("--keep-gathered", o.choice.keep_gathered,
                   "Keep whole parameters from forward to backward: more memory, less traffic");
  add_whole(command, "--batch", o.batch, "Rows of a step, over all ranks", 1);
  add_whole(command, "--accumulate", o.accumulate, "Micro-steps that a step's rows are split into",
            1);
  add_whole(command, "--seq", o.seq, "Tokens of a row", 1);
  add_sequence_way_flag(command, o);
}

void add_device_flag(CLI::App& command, std::string& device) {
  add_shown(command, "--device", device,
            "Device of the ranks: cpu; cuda: each rank on a GPU, in turn; cuda:0: all on "
            "that one");
}

std::vector<MeshAxis> parsed_axes(const std::string& text) {
  std::vector<MeshAxis> axes;
  for (const auto part : std::views::split(text, ',')) {
    const std::string axis(part.begin(), part.end());
    const size_t equals = std::min(axis.find('='), axis.size());
    const auto is_of_name = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
    const bool is_named = equals > 0 && std::ranges::all_of(axis.substr(0, equals), is_of_name);
    const auto size = number_in<int>(axis.substr(std::min(equals + 1, axis.size())));
    if (!is_named || size.value_or(0) < 1) {
      fail("--mesh ", in_quotes(text), ": axis is ", in_quotes(axis),
           ", expected a name and a size; write for example dp=4");
    }
    axes.push_back({axis.substr(0, equals), *size});
    if (std::ranges::count(axes, axes.back().name, &MeshAxis::name) > 1) {
      fail("--mesh ", in_quotes(text), ": two axes are called ", in_quotes(axes.back().name),
           ", expected different names");
    }
    if (axes.size() > kMostAxes) {
      fail("--mesh ", in_quotes(text), " has ", axes.size(), " axes or more, expected at most ",
           kMostAxes);
    }
  }
  return axes;
}

int ranks_of_mesh(const std::string& text, int most, int ranks, const char* flag) {
  int64_t size = 1;
  for (const MeshAxis& axis : parsed_axes(text)) {
    size *= axis.size;
    if (size > most)
      fail("--mesh ", text, " has ", size, " ranks or more, expected at most ", most);
  }
  if (ranks != 0 && size != ranks) {
    fail("--mesh ", text, " has ", size, " ranks, expected ", ranks, ", that of ", flag);
  }
  return static_cast<int>(size);
}

/// An axis of data alone.
static bool is_data_axis(const MeshAxis& axis) {
  return axis.name != kTensorAxis && axis.name != kExpertAxis && axis.name != kPipelineAxis &&
         axis.name != kSequenceAxis;
}

/// The parameters of experts must be cut by ep last, as their rows of a batch are.
static void check_order(const std::vector<MeshAxis>& axes, const std::string& mesh) {
  const auto ep = std::ranges::find(axes, kExpertAxis, &MeshAxis::name);
  const auto is_behind = [](const MeshAxis& axis) {
    return is_data_axis(axis) || axis.name == kSequenceAxis;
  };
  if (std::none_of(ep, axes.end(), is_behind)) return;
  fail("--mesh ", mesh,
       ": axis ep is before one that carries rows or cp, expected it behind them; write "
       "for example shard=2,ep=4,tp=2");
}

/// Tiers that need recomputation or a plan.
static void check_choices(const ParallelOptions& o) {
  const bool is_budget = budget_of(o.recompute).has_value() || !o.memory.empty();
  if (o.choice.offload.activations.offloads() && o.recompute == "none" && !is_budget &&
      o.choice.blocks.empty()) {
    fail("--offload: activations rest in a tier while --activation-checkpointing is none, ",
         "expected another choice");
  }
  if (!o.free.offloads()) return;
  if (!o.free.is_disk()) fail("--offload auto: tier is host, expected disk:DIR");
  if (o.memory.empty()) fail("--offload auto is given without --memory, expected both");
}

int complete(ParallelOptions& o, int ranks, int most, const char* flag) {
  check_choices(o);
  if (!o.memory.empty()) bytes_from("--memory", o.memory);
  if (o.batch % o.accumulate != 0) {
    fail("--batch is ", o.batch, ", expected a multiple of --accumulate, ", o.accumulate);
  }
  constexpr int64_t kMostTokens = int64_t{1} << 40;
  if (o.batch > kMostTokens / o.seq) {
    fail("--batch is ", o.batch, " rows of --seq ", o.seq, ", expected at most ", kMostTokens,
         " tokens a step");
  }
  if (o.mesh.empty()) o.mesh = concat("dp=", std::max(1, ranks));
  std::vector<MeshAxis> axes = parsed_axes(o.mesh);
  check_axis_names(axes, o.mesh);
  check_order(axes, o.mesh);
  check_sequence_way(axes, o);
  const int size = ranks_of_mesh(o.mesh, most, ranks, flag);
  Strategy strategy = Strategy::named(o.strategy);
  const auto data = std::ranges::count_if(axes, is_data_axis);
  if (strategy.rows.size() > 1 && static_cast<ptrdiff_t>(strategy.rows.size()) != data) {
    fail("--mesh ", o.mesh, " has ", data, data == 1 ? " axis that carries" : " axes that carry",
         " rows, expected ", strategy.rows.size(), ", those of --strategy ", o.strategy,
         "; write for example replicate=2,shard=2, and add ep or tp");
  }
  const bool has_tensor_axis = std::ranges::count(axes, kTensorAxis, &MeshAxis::name) > 0;
  if (o.sequence_parallel.value_or(false) && !has_tensor_axis) {
    fail("--sequence-parallel: --mesh is ", o.mesh, ", expected one with an axis tp");
  }
  o.sequence_parallel = o.sequence_parallel.value_or(has_tensor_axis);
  if (o.async_tp > 1 && !*o.sequence_parallel) {
    fail("--async-tp: --mesh is ", o.mesh, has_tensor_axis ? " with --no-sequence-parallel" : "",
         ", expected one with an axis tp and sequence parallelism");
  }
  if (o.async_tp > 1 && o.float8) {
    fail("--async-tp is given with --float8, expected one of them");
  }
  check_adapter_flags(o.adapters, o.float8, o.async_tp);
  return size;
}

std::vector<MeshAxis> axes_with_rows(const std::string& text) {
  std::vector<MeshAxis> axes = parsed_axes(text);
  if (std::ranges::none_of(axes, is_data_axis)) axes.insert(axes.begin(), {"dp", 1});
  return axes;
}

TransformerConfig with_flags(TransformerConfig config, const ParallelOptions& options) {
  if (options.expert_chunks > 1 && config.experts == 0) {
    fail("--expert-chunks is ", options.expert_chunks, ", but the model (", config.family,
         ") has no experts, expected 1");
  }
  config.expert_chunks = options.expert_chunks;
  if (!config.learned_positions) config.max_sequence = std::max(config.max_sequence, options.seq);
  return config;
}

void check_expert_axis(const std::vector<MeshAxis>& axes, const TransformerConfig& config,
                       const std::string& mesh) {
  const auto axis = std::ranges::find(axes, kExpertAxis, &MeshAxis::name);
  if (axis == axes.end()) return;
  if (config.experts == 0) {
    fail("--mesh ", mesh, ": axis is ep, but the model (", config.family,
         ") has no experts, expected another name");
  }
  if (axis->size > config.experts) {
    fail("--mesh ", mesh, ": axis ep has ", axis->size, " ranks, expected at most ", config.experts,
         ", one for each expert");
  }
}

/// The policy of block `index` under --activation-checkpointing `choice`.
static std::string_view policy_of(const std::string& choice, size_t index) {
  if (choice == "selective") return index % 2 == 0 ? "full" : "none";
  return budget_of(choice) ? "none" : std::string_view(choice);
}

void set_block_policies(TransformerModel& model, const ParallelOptions& options, size_t first) {
  const StepChoice& choice = options.choice;
  size_t i = first;
  for (Module* block : model.blocks()) {
    const std::string policy = concat(policy_of(options.recompute, i), kOffloadsSaved);
    set_block_policy(*block, i < choice.blocks.size() ? choice.blocks[i] : policy,
                     choice.offload.activations);
    ++i;
  }
}

ParallelTransformer::ParallelTransformer(const Communicator& world, const TransformerConfig& config,
                                         const ParallelOptions& options, StagePart part)
    : options_(options),
      part_(part),
      mesh_(world, axes_with_rows(options.mesh)),
      data_(axes_of_rows(mesh_)),
      model_(with_flags(config, options)),
      rows_(sharded_rows(mesh_)) {
  check_expert_axis(parsed_axes(options.mesh), config, options.mesh);
  if (!part.is_whole()) {
    keep_stage(model_, part.first ? 0 : 1, config.layers - (part.last ? 0 : 1));
  }
  apply(options.adapters, model_);
  for (int axis = 0; axis < data_.ndim(); ++axis) {
    if (data_.axis_name(axis) == kExpertAxis) expert_axis_ = kExpertAxis;
  }
  const auto cut = [&](const char* axis, const std::vector<ModuleStyle>& styles) {
    part.is_whole() ? parallelize(model_, mesh_[axis], styles)
                    : parallelize_stage(model_, mesh_[axis], styles);
  };
  if (!expert_axis_.empty()) cut(kExpertAxis, expert_styles());
  if (data_.ndim() < mesh_.ndim()) {
    cut(kTensorAxis,
        transformer_styles(config, {.sequence_parallel = options.sequence_parallel.value_or(true),
                                    .parts = options.async_tp}));
  }
  if (options.float8) {
    convert_to_float8(model_, [](const Linear&, const std::string& path) {
      return path != "lm_head" && !is_adapter_parameter(path + ".weight");
    });
  }
  set_block_policies(model_, options_);
  model_.set_sequence_way(sequence_way_named("--sequence-way", options.sequence_way));
}

FullyShardOptions ParallelTransformer::sharding() const {
  FullyShardOptions options = sharding_of(options_);
  options.strategy = with_sequences(std::move(options.strategy), data_);
  return options;
}

FullyShardOptions sharding_of(const ParallelOptions& o) {
  FullyShardOptions options;
  options.strategy = Strategy::named(o.strategy);
  options.reshard_after_forward = !o.choice.keep_gathered;
  options.prefetch = o.choice.prefetch;
  if (o.dtype != "f32") {
    const DType narrow = dtype_named(o.dtype);
    options.precision = {.compute = narrow, .gather = narrow, .reduce = DType::f32};
  }
  const std::string& gather = o.gather_dtype;
  const std::string& gradient = o.gradient_dtype;
  if (gather == "int8" || gather == "fp8") {
    options.precision.gather = {};
    options.quantization.gather = gather == "int8" ? DType::i8 : DType::f8_e4m3;
  } else if (!gather.empty()) {
    options.precision.gather = dtype_named(gather);
  }
  if (gradient == "f32") options.precision.reduce = DType::f32;
  if (gradient == "int8") options.quantization.reduce = DType::i8;
  if (gradient == "bf16") options.quantization.reduce = DType::bf16;
  options.offload = {o.choice.offload.parameters, o.choice.offload.gradients};
  return options;
}

StepModel ParallelTransformer::step_model(const std::shared_ptr<ParallelTransformer>& owner) {
  return {.model = std::shared_ptr<Module>(owner, &model_),
          .blocks = model_.blocks(),
          .units = model_.units(),
          .expert_axis = expert_axis_};
}

void ParallelTransformer::shard() {
  shard_units(step_model(), data_, sharding(), options_.choice.fine_units);
}

Tensor ParallelTransformer::differentiate(const Tensor& ids, const Tensor& targets) {
  Tensor loss;
  {
    const TraceSpan span("forward", -1, ids.device());
    loss = this->loss(ids, targets, {});
  }
  const TraceSpan span("backward", -1, ids.device());
  const auto micro_steps = static_cast<double>(options_.accumulate);
  (micro_steps == 1 ? loss : mul(loss, 1 / micro_steps)).backward();
  return loss.detach();
}

}  // namespace weft::cli

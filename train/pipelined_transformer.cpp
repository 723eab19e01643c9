// SPDX-License-Identifier: Apache-2.0
#include "weft/pipelined_transformer.h"

#include <fnmatch.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <span>
#include <utility>

#include "train/reproducible.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/disk_tensor.h"
#include "weft/extend/hash.h"
#include "weft/extend/run_folder.h"
#include "weft/extend/saved_model.h"
#include "weft/fsdp_module.h"
#include "weft/hugging_face.h"
#include "weft/ops/elementwise.h"
#include "weft/optimizers.h"
#include "weft/transformer_stage.h"

namespace weft {

namespace {

/// Holds the models of a rank's stages.
class StageList final : public Module {
 public:
  void append(const std::string& name, const std::shared_ptr<Module>& stage) { add(name, stage); }

 protected:
  Tensors forward(const Tensors&) override {
    fail("pipeline: module of several stages is called, expected a call of one of them");
  }
};

}  // namespace

static std::vector<int> checked_ends(const TransformerConfig& config, int stages, int64_t sequence,
                                     std::vector<int> ends) {
  if (ends.empty()) {
    if (config.layers < stages) {
      fail("pipeline: number of stages is ", stages, ", expected at most ", config.layers,
           ", the layers of the model");
    }
    return balanced_stages(block_costs(config, sequence), stages);
  }
  const bool rises = std::ranges::adjacent_find(ends, std::greater_equal()) == ends.end();
  if (static_cast<int>(ends.size()) != stages || !rises || ends[0] < 1 ||
      ends.back() != config.layers) {
    fail("pipeline: ends of the stages are ", listed(ends), ", expected ", stages, " that rise to ",
         config.layers, ", the layers of the model");
  }
  return ends;
}

PipelinedTransformer::PipelinedTransformer(const DeviceMesh& mesh, const TransformerConfig& config,
                                           const PipelineProgram& program, int64_t sequence,
                                           std::vector<int> ends)
    : pipeline_(mesh, program),
      ends_(checked_ends(config, program.stages(), sequence, std::move(ends))) {
  auto list = std::make_shared<StageList>();
  module_ = list;
  RandomState& random = Context::current().random;
  const RandomState before = random;
  for (const int stage : pipeline_.own_stages()) {
    random = before;
    auto model = std::make_shared<TransformerModel>(config);
    const auto at = static_cast<size_t>(stage);
    keep_stage(*model, stage == 0 ? 0 : ends_[at - 1], ends_[at]);
    list->append(concat("stage", stage), model);
    stages_.push_back(std::move(model));
    add_stage(stage);
  }
  if (config.tied && program.stages() > 1) {
    pipeline_.tie({0, program.stages() - 1, "model.embed_tokens.weight", "lm_head.weight"});
  }
}

/// Between the first backward and the reduction each rank keeps its gradients.
static void keep_gradients(TransformerModel& model) {
  if (!FsdpModule::is_sharded(model)) return;
  FsdpModule sharded(model);
  sharded.set_manual_backward_finalization(true);
  sharded.set_requires_gradient_sync(false);
}

static void reduce_gradients(TransformerModel& model) {
  if (!FsdpModule::is_sharded(model)) return;
  FsdpModule sharded(model);
  sharded.set_requires_gradient_sync(true);
  sharded.finalize_backward();
}

Tensors PipelinedTransformer::rows_computed(TransformerModel& stage, bool is_last,
                                            const Tensors& inputs, size_t number) {
  const SharedBatch& batch = batches_.at(number);
  const RandomState before = Context::current().random;
  Tensors computed;
  if (is_last) {
    TransformerLossOptions options = batch.options;
    options.reduction = LossReduction::sum;
    options.divisor = rows_->divisor;
    computed = {stage_loss(stage, inputs, batch.targets, options)};
    rows_->losses[number] = computed[0].detach();
  } else {
    computed = run_stage(stage, inputs, batch.options, batch.targets);
  }
  if (Context::current().random == before) return computed;
  fail("pipeline: stage draws random numbers, as for dropout, expected none for reproducible");
}

void PipelinedTransformer::add_stage(int stage) {
  const std::shared_ptr<TransformerModel> model = stages_.back();
  const bool is_last = stage + 1 == pipeline_.program().stages();
  const auto compute = [this, model, stage, is_last](const Tensors& inputs, int microbatch) {
    const auto at = static_cast<size_t>(microbatch);
    const SharedBatch& batch = batches_.at(at);
    const Tensors given = stage == 0 ? Tensors{batch.ids} : inputs;
    if (rows_) return rows_computed(*model, is_last, given, at);
    if (!is_last) return run_stage(*model, given, batch.options, batch.targets);
    const Tensor loss = stage_loss(*model, given, batch.targets, batch.options);
    if (Context::current().grad_enabled) balances_[at] = model->balance_loss();
    return Tensors{mul(loss, weights_[at])};
  };
  pipeline_.add({.stage = stage,
                 .module = model,
                 .run = compute,
                 .begin =
                     [this, model] {
                       if (!rows_) keep_gradients(*model);
                     },
                 .reduce =
                     [this, model] {
                       if (!rows_) reduce_gradients(*model);
                     },
                 .after_backward =
                     [this, model, stage](int microbatch) {
                       if (rows_) rows_->take(stage, model->parameters(), microbatch);
                     }});
}

std::vector<NamedParameter> PipelinedTransformer::named_parameters() const {
  std::vector<NamedParameter> all;
  for (const auto& stage : stages_) {
    for (NamedParameter& named : stage->named_parameters()) all.push_back(std::move(named));
  }
  return all;
}

/// Returns whether the style's path matches a module.
static bool matches_one(const ModuleStyle& style, Module& model) {
  const auto in_folders = [](std::string path) {
    std::ranges::replace(path, '.', '/');
    return path;
  };
  const std::string pattern = in_folders(style.path);
  return std::ranges::any_of(model.named_modules(), [&](const auto& named) {
    return ::fnmatch(pattern.c_str(), in_folders(named.first).c_str(), FNM_PATHNAME) == 0;
  });
}

void parallelize_stage(TransformerModel& stage, const DeviceMesh& axis,
                       const std::vector<ModuleStyle>& styles) {
  std::vector<ModuleStyle> own;
  for (const ModuleStyle& style : styles) {
    if (matches_one(style, stage)) own.push_back(style);
  }
  if (!own.empty()) parallelize(stage, axis, own);
}

std::vector<int> stage_ends(const TransformerConfig& config,
                            const std::vector<std::string>& firsts) {
  constexpr std::string_view kBlocks = "model.layers.";
  std::vector<int> ends;
  for (const std::string& path : firsts) {
    const char* end = path.data() + path.size();
    int block = -1;
    if (path.starts_with(kBlocks)) {
      const auto [stop, error] = std::from_chars(path.data() + kBlocks.size(), end, block);
      if (stop != end || error != std::errc()) block = -1;
    }
    const int before = ends.empty() ? 0 : ends.back();
    if (block <= before || block >= config.layers) {
      fail("pipeline: first module of stage ", ends.size() + 1, " is ", in_quotes(path),
           ", expected one of ", kBlocks, before + 1, " to ", kBlocks, config.layers - 1);
    }
    ends.push_back(block);
  }
  ends.push_back(static_cast<int>(config.layers));
  return ends;
}

void PipelinedTransformer::parallelize(const std::string& axis,
                                       const std::vector<ModuleStyle>& styles) {
  for (const auto& stage : stages_) parallelize_stage(*stage, stage_mesh()[axis], styles);
}

void PipelinedTransformer::share_sequences(const std::string& axis, SequenceWay way) {
  stage_mesh().axis(axis);
  sequence_axis_ = axis;
  for (const auto& stage : stages_) stage->set_sequence_way(way);
}

void PipelinedTransformer::materialize(Device device) {
  for (const auto& stage : stages_) stage->materialize(device);
}

/// A tensor of the whole mesh, as one of the stages' mesh.
static Tensor on_stage(const Tensor& tensor, const Pipeline& pipeline) {
  if (!tensor || !tensor.is_sharded()) return tensor;
  const DeviceMesh& stage = pipeline.stage_mesh();
  const Sharding from = tensor.sharding();
  if (from.mesh() == stage) return tensor;
  std::vector<NamedPlacement> placements;
  for (int axis = 0; axis < from.axes(); ++axis) {
    const std::string& name = from.mesh().axis_name(axis);
    if (from[axis].is_partial()) {
      fail("pipeline: rows are laid out as ", from, ", expected whole tensors and chunks");
    }
    if (from[axis].is_shard()) placements.push_back({name, from[axis]});
  }
  Placements all{std::span<const NamedPlacement>(placements)};
  for (int dim = 0; dim < tensor.ndim(); ++dim) {
    std::vector<std::string> order;
    for (const int axis : from.axes_cutting(dim)) order.push_back(from.mesh().axis_name(axis));
    if (order.size() > 1 && !from.has_inner()) all = all.cut_in_order(dim, order);
  }
  return from_local(tensor.local(), stage, all, tensor.shape());
}

/// Shares the losses of the last stage along the pipeline's axis.
void PipelinedTransformer::exchange_balances(size_t count) {
  balance_losses_.clear();
  if (!stages_[0]->config().balance_loss) return;
  std::vector<int64_t> bits(count, 0);
  for (size_t i = 0; i < count; ++i) {
    if (balances_[i]) bits[i] = std::bit_cast<int64_t>(balances_[i].full_tensor().item());
  }
  // All other ranks add 0.
  mesh()["pp"].communicator().all_reduce_numbers(bits, ReduceOp::sum);
  for (const int64_t one : bits) balance_losses_.push_back(std::bit_cast<double>(one));
  balances_.clear();
}

/// A hash of this rank's elements; 0 without tensors, or where nothing is to be compared.
static uint64_t hash_of(const std::vector<TrainingBatch>& batches, Tensor TrainingBatch::*part) {
  if (!Context::current().checks_equality.value_or(true)) return 0;
  const NoGrad no_grad;
  uint64_t hash = 0;
  for (const TrainingBatch& batch : batches) {
    if (!(batch.*part)) continue;
    const Tensor local = clone((batch.*part).local().to(cpu));
    const auto* begin = static_cast<const std::byte*>(local.block().data);
    const auto bytes = static_cast<size_t>(local.numel()) * size_of(local.dtype());
    hash = xxh3_of({begin, bytes}, hash) | 1;
  }
  return hash;
}

std::vector<double> PipelinedTransformer::run(const std::vector<TrainingBatch>& batches,
                                              const std::vector<double>& weights,
                                              bool with_gradients) {
  if (batches.size() != weights.size()) {
    fail("pipeline: number of weights is ", weights.size(), ", expected ", batches.size(),
         ", that of the batches");
  }
  if (batches.empty()) {
    fail("pipeline: number of batches is 0, expected 1 to ", pipeline_.program().microbatches);
  }
  std::vector<TrainingBatch> own;
  for (const TrainingBatch& batch : batches) {
    own.push_back({on_stage(batch.ids, pipeline_), on_stage(batch.targets, pipeline_),
                   on_stage(batch.segments, pipeline_)});
  }
  batches_.clear();
  for (const TrainingBatch& rows : own) {
    batches_.push_back(sequence_axis_.empty()
                           ? SharedBatch{rows.ids, rows.targets, {.segments = rows.segments}}
                           : share_batch(stages_[0]->config(), rows.ids, rows.targets,
                                         rows.segments, stage_mesh()[sequence_axis_]));
  }
  weights_ = weights;
  pipeline_.compare_in_next_run({.ids = hash_of(own, &TrainingBatch::ids),
                                 .targets = hash_of(own, &TrainingBatch::targets),
                                 .segments = hash_of(own, &TrainingBatch::segments),
                                 .weights = xxh3_of(std::as_bytes(std::span(weights)))});
  const int count = static_cast<int>(batches.size());
  if (!with_gradients) return pipeline_.evaluate(count);
  balances_.assign(batches.size(), {});
  const std::vector<double> losses = pipeline_.run(count);
  exchange_balances(batches.size());
  return losses;
}

std::vector<double> PipelinedTransformer::differentiate(const std::vector<TrainingBatch>& batches,
                                                        const std::vector<double>& weights) {
  return run(batches, weights, true);
}

std::vector<double> PipelinedTransformer::run_rows(const std::vector<TrainingBatch>& batches,
                                                   double divisor, const TakeGradients& take) {
  rows_ = Rows{divisor, take, Tensors(batches.size())};
  struct End {
    std::optional<Rows>& rows;
    ~End() { rows.reset(); }
  } const end{rows_};
  run(batches, std::vector<double>(batches.size(), 1), static_cast<bool>(take));
  std::vector<double> own;
  for (const Tensor& loss : rows_->losses) own.push_back(loss ? own_part(loss) : 0);
  return own;
}

std::vector<double> PipelinedTransformer::evaluate(const std::vector<TrainingBatch>& batches,
                                                   const std::vector<double>& weights) {
  return run(batches, weights, false);
}

Tensor PipelinedTransformer::gradient_norm() const {
  std::vector<ParameterPtr> parameters;
  for (const NamedParameter& named : named_parameters()) parameters.push_back(named.parameter);
  return pipeline_.gradient_norm(parameters);
}

double PipelinedTransformer::clip_grad_norm(double max_norm) const {
  std::vector<ParameterPtr> parameters;
  for (const NamedParameter& named : named_parameters()) parameters.push_back(named.parameter);
  const Tensor norm = gradient_norm();
  clip_grads_with_norm(parameters, max_norm, norm);
  return norm.item();
}

static StateDict dict_of(Pipeline::State state) {
  return {std::move(state.tensors), std::move(state.numbers)};
}

Pipeline::State PipelinedTransformer::own_model() const {
  Pipeline::State all;
  for (const auto& stage : stages_) all.tensors.merge(state_dict(*stage).tensors);
  return all;
}

void PipelinedTransformer::load_weights(const std::string& path) {
  const Pipeline::State own = own_model();
  StateDict all = dict_of(pipeline_.of_all_stages(own));
  if (is_hugging_face(path)) {
    load_hugging_face(all, path, stages_[0]->config());
  } else {
    StateDict parts;
    for (const auto& [name, tensor] : all.tensors) parts.tensors.emplace("model/" + name, tensor);
    weft::load_weights(path, parts);
  }
  pipeline_.of_own_stages(own, {});
}

/// Stages share memory alone.
static void check_tiers(const std::map<std::string, Tensor>& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (!rests_on_disk(tensor)) continue;
    fail("pipeline: tier of ", name, " is disk, expected device or host");
  }
}

void PipelinedTransformer::add_to(TrainingState& state, Optimizer& optimizer) {
  check_tiers(own_model().tensors);
  check_tiers(state_dict(optimizer).tensors);
  using Numbers = std::map<std::string, int64_t>;
  state.add(
      "model",
      {.give = [this] { return dict_of(pipeline_.of_all_stages(own_model())); },
       .take = [this](const Numbers& numbers) { pipeline_.of_own_stages(own_model(), numbers); }});
  const auto own_optimizer = [&optimizer] {
    StateDict own = state_dict(optimizer);
    return Pipeline::State{std::move(own.tensors), std::move(own.numbers)};
  };
  state.add("optimizer",
            {.give = [=, this] { return dict_of(pipeline_.of_all_stages(own_optimizer())); },
             .take =
                 [=, this, &optimizer](const Numbers& numbers) {
                   load_state_dict(optimizer,
                                   dict_of(pipeline_.of_own_stages(own_optimizer(), numbers)));
                 }});
}

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>

#include "cli/adapters.h"
#include "cli/commands.h"
#include "cli/data.h"
#include "cli/pipeline.h"
#include "cli/run_description.h"
#include "cli/step_cost.h"
#include "cli/train_options.h"
#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/module_paths.h"
#include "weft/extend/run_folder.h"
#include "weft/extend/store.h"
#include "weft/extend/token_files.h"
#include "weft/generate.h"
#include "weft/optimizer_named.h"
#include "weft/parameter_groups.h"
#include "weft/peft.h"
#include "weft/ranks.h"
#include "weft/trace.h"
#include "weft/trainer.h"
#include "weft/transformer.h"

namespace weft::cli {

/// Validations in a run.
static constexpr int64_t kValidations = 10;

/// Digests of the files of --init, which are read while ranks meet and make their models.
using Digests = std::shared_future<std::vector<RunItem>>;

/// The tokens of a text; its bytes without a tokenizer.
static std::vector<int64_t> tokens_of(const std::string& text,
                                      const std::optional<Tokenizer>& tokenizer) {
  if (tokenizer && !text.empty()) return tokenizer->encode(text);
  std::vector<int64_t> bytes(text.begin(), text.end());
  for (int64_t& byte : bytes) byte &= 0xff;
  return bytes;
}

static OnTrouble policy_named(const std::string& name) {
  return name == "skip" ? OnTrouble::skip : OnTrouble::stop;
}

namespace {

/// "measured: 0.012 s of communication a step on rank 0's GPU, 0.011 s of them hidden".
void tell(TraceScope& trace, const char* what, double communication, double exposed) {
  trace.note(concat(what, "_communication_seconds"), communication);
  trace.note(concat(what, "_exposed_seconds"), exposed);
  std::printf("%s: %.4g s of communication a step on rank 0's GPU, %.4g s of them hidden\n", what,
              communication, std::max(0.0, communication - exposed));
}

/// Prints how many events this rank's trace dropped, and how much of its communication the GPU
/// overlapped with computing in the spans "step", compared with the prediction. Records both in the
/// trace. Reports no overlap on a CPU, where ranks run their own communication.
void report_trace(TraceScope& trace, Device device, const std::optional<StepSeconds>& predicted) {
  if (trace.dropped() > 0) {
    print("the trace holds the first ", trace.events(), " events of rank 0; ", trace.dropped(),
          " were dropped\n");
  }
  std::fflush(stdout);
  const auto measured = device.kind == DeviceKind::cuda ? trace.overlap("step") : TraceOverlap();
  if (measured.communication == 0) return;
  tell(trace, "measured", measured.communication, measured.exposed);
  if (predicted) {
    tell(trace, "predicted", predicted->communication, predicted->total - predicted->compute);
  } else {
    print("predicted: nothing, for weft does not know the rates of ", device_name(device), '\n');
  }
}

/// One rank's training.
class Training {
 public:
  Training(const TrainOptions& options, const TransformerConfig& config, const RunData& data,
           const Communicator& world)
      : options_(options),
        data_(data),
        config_(with_flags(config, options.parallel)),
        pipeline_(pipelined(world, config, for_stages(options))),
        whole_(pipeline_ ? nullptr
                         : std::make_unique<ParallelTransformer>(world, config, options.parallel)),
        mesh_(pipeline_ ? pipeline_->mesh() : whole_->mesh()),
        model_(pipeline_ ? pipeline_->module() : whole_->model()),
        device_(device_of_rank(options.device, world.rank())) {
    if (options.deterministic) use_deterministic_algorithms(true);
    if (whole_) whole_->shard();
    pipeline_ ? pipeline_->materialize(device_) : model_.materialize(device_);
    if (!options.init.empty()) {
      pipeline_ ? pipeline_->load_weights(options.init) : load_weights(model_, options.init);
    }
    if (!options.adapter.empty()) load_adapters(model_, options.adapter);
    NamedOptimizerOptions named = optimizer_options(options);
    named.offload = options.parallel.choice.state;
    if (pipeline_) {
      // A stage may have no parameter that the pattern finds.
      check_no_decay(*named.decays.target<NoDecay>(), TransformerModel(config_).named_parameters());
      named.decays = [decays = named.decays](const NamedParameter& p) { return decays(p); };
    }
    optimizer_ = optimizer_named(options.parallel.optimizer, named_parameters(), named);
    if (is_first()) check_writable("--trace", options.trace);
    Trainer::Loss loss;
    if (whole_ && !options.reproducible) {
      loss = [this](const TrainingBatch& rows) {
        return whole_->loss(rows.ids, rows.targets, rows.segments);
      };
    }
    trainer_.emplace(model_, data.rows.train, *optimizer_, sharded_rows(mesh_), trainer_options(),
                     std::move(loss));
  }

  void run(const RunDescription& description, const Digests& digests) {
    if (is_first()) describe();
    for (const RunItem& item : description.items()) trainer_->add(item);
    trainer_->add({"tokens", data_.rows.train->tokens(), Resumed::allowed, "data"});
    for (const RunItem& digest : digests.get()) trainer_->add(digest);
    trainer_->resume();
    if (is_first()) keep_tokenizer(options_.rows, data_.tokenizer, options_.checkpoints.save);
    const std::optional<StepSeconds> predicted = prediction();
    if (is_first()) set_aside("--trace", options_.trace);
    if (!options_.trace.empty()) trace_.emplace();
    std::optional<ShadowScope> shadow;
    if (options_.shadow > 0) shadow.emplace(ShadowOptions{options_.shadow}, module_paths(model_));
    const bool is_done = trainer_->run();
    shadow.reset();
    if (trace_ && is_first()) report_trace(*trace_, device_, predicted);
    if (trace_) trace_->write(mesh_.communicator(), options_.trace);
    if (is_done && options_.sample > 0) print_sample();
  }

 private:
  bool is_first() const { return mesh_.rank() == 0; }

  std::vector<NamedParameter> named_parameters() const {
    return pipeline_ ? pipeline_->named_parameters() : model_.named_parameters();
  }

  TrainerOptions trainer_options() const {
    TrainerOptions o;
    o.batch = options_.parallel.batch;
    o.accumulate = options_.parallel.accumulate;
    o.steps = options_.steps;
    o.clip = options_.clip;
    o.clip_value = options_.clip_value;
    o.ema = options_.ema;
    o.schedule = schedule_of(options_);
    o.device = device_;
    o.validation = data_.rows.held_out;
    o.validate_every = options_.validate_every > 0
                           ? options_.validate_every
                           : std::max<int64_t>(1, options_.steps / kValidations);
    o.validation_batches = options_.validation_batches;
    o.on_non_finite = policy_named(options_.on_non_finite);
    o.on_spike = policy_named(options_.on_spike);
    o.spike = options_.spike;
    o.most_skipped = options_.most_skipped;
    o.patience = options_.patience;
    o.keep_best = options_.keep_best;
    o.check_replicas = options_.check_replicas;
    o.reproducible = options_.reproducible;
    o.checkpoints = options_.checkpoints;
    o.model_files = options_.init;
    o.pipeline = pipeline_;
    o.metrics = options_.metrics;
    o.tell = [](const std::string& line) {
      print(line, '\n');
      std::fflush(stdout);
    };
    o.balance_rate = options_.stated_balance_rate();
    o.peak_tokens = peak_rate();
    o.graph = options_.cuda_graph;
    o.graph_updates = !options_.parallel.choice.state.offloads();
    o.describes = false;
    return o;
  }

  /// Tokens a second of all devices at their peak; nothing where that is not known.
  std::optional<double> peak_rate() const {
    std::optional<double> peak =
        peak_operations(device_name(device_), options_.parallel.dtype, options_.parallel.float8);
    if (options_.peak_tflops > 0) peak = 1e12 * options_.peak_tflops;
    if (!peak) return {};
    return *peak * devices_of_ranks(options_.device, mesh_.communicator().size()) /
           needed_operations_a_token(config_, options_.parallel.seq);
  }

  /// Predicted times of a step on rank 0's GPU; empty without a trace or for an unknown GPU.
  std::optional<StepSeconds> prediction() const {
    if (options_.trace.empty() || !is_first() || device_ == cpu || pipeline_) return {};
    const auto machine = machine_of_device(device_name(device_), options_.parallel.dtype);
    const int ranks = mesh_.communicator().size();
    const int a_host = launched_ranks() > 1 ? launched_local_rank().size : ranks;
    if (!machine || a_host == 0) return {};
    return predicted_step(*machine, config_, options_.parallel, ranks, a_host);
  }

  void describe() const {
    int64_t parameters = 0;
    const std::map<std::string, int64_t> packed = packed_weights(model_);
    for (const auto& [names, parameter] : model_.named_parameters()) {
      const Shape& shape = parameter->shape();
      const auto columns = packed.find(names.front());
      parameters += columns == packed.end() ? shape.product() : shape[0] * columns->second;
    }
    if (pipeline_) parameters = parameters_of(config_).total;
    const std::string device =
        device_ == cpu ? "" : concat(" of ", options_.device, " (", device_name(device_), ')');
    const int threads = Context::current().threads;
    print(data_.rows.train->description(), "; ", data_.rows.train->rows(), " rows to train on, ",
          data_.rows.held_out->rows(), " to validate on; a model of ", parameters,
          " parameters on ", mesh_, device, ", ", threads, threads == 1 ? " thread" : " threads",
          " a rank\n");
    if (pipeline_) {
      const PipelineProgram& program = pipeline_->pipeline().program();
      print("pipeline ", program.name, ": ", program.stages(), " stages on ", program.ranks(),
            " ranks, ", program.microbatches, " microbatches, ",
            formatted("%.1f", 100 * predicted_bubble(*pipeline_, config_, options_.parallel)),
            " % bubble predicted; more micro-steps (--accumulate) make it smaller\n");
    }
    print(update_in_words(), '\n');
    warn_of_fused();
    if (options_.parallel.adapters.lora) {
      int64_t trained = 0;
      for (const ParameterPtr& parameter : model_.parameters())
        trained += parameter->is_trainable() ? parameter->shape().product() : 0;
      print("adapters of rank ", options_.parallel.adapters.lora->rank, ": ", trained,
            " parameters are trained\n");
    }
    if (!options_.memory_plan.empty()) print(options_.memory_plan, '\n');
    std::fflush(stdout);
  }

  /// The model may have modules that PEFT has no name for.
  void warn_of_fused() const {
    try {
      check_peft(model_);
    } catch (const std::invalid_argument& problem) {
      warn("warning: ", problem.what(), "; of these adapters weft ckpt export writes only the ",
           "merged model (--merge)");
    }
  }

  /// "adamw: learning rate 2e-05, beta1 0.9, ...; schedule cosine, 10 steps of warm-up, down to
  /// 2e-06".
  std::string update_in_words() const {
    std::string text =
        concat(options_.parallel.optimizer, ": learning rate ", options_.learning_rate);
    for (const Hyperparameter& number : optimizer_->hyperparameters(0)) {
      std::string name(number.name);
      std::ranges::replace(name, '_', ' ');
      const bool is_flag = std::holds_alternative<bool*>(number.value);
      if (name != "lr" && !is_flag) text += concat(", ", name, ' ', number.get());
    }
    return concat(text, "; ", schedule_in_words(options_));
  }

  /// The first tokens of the sample: those of the prompt, or the first held-out tokens.
  std::vector<int64_t> prompt() const {
    std::vector<int64_t> tokens = tokens_of(options_.prompt, data_.tokenizer);
    if (!tokens.empty()) return tokens;
    std::vector<int64_t> ids(static_cast<size_t>(options_.parallel.seq)), targets(ids.size());
    std::vector<int64_t> segments(data_.rows.held_out->has_segments() ? ids.size() : 0);
    data_.rows.held_out->read(0, {ids, targets, segments});
    ids.resize(std::min<size_t>(ids.size(), 64));
    return ids;
  }

  void print_sample() {
    std::vector<int64_t> tokens = prompt();
    const size_t given = tokens.size();
    model_.set_training(false);
    GenerateOptions options{.sampling = {.seed = options_.seed},
                            .tokens = options_.sample,
                            .window = options_.parallel.seq};
    if (data_.tokenizer) options.end_ids = data_.tokenizer->end_ids();
    const std::vector<int64_t> added = generate(whole_->model(), mesh_, tokens, options);
    model_.set_training(true);
    if (!is_first()) return;
    tokens.insert(tokens.end(), added.begin(), added.end());
    print("--- sample, after ", given, " given tokens\n");
    std::optional<TextStream> text;
    if (data_.tokenizer) text.emplace(*data_.tokenizer, false);
    // A model may have more ids than its tokenizer.
    const auto is_known = [&](int64_t id) { return text && id < data_.tokenizer->size(); };
    for (size_t i = 0; i < tokens.size(); ++i) {
      const int64_t id = tokens[i];
      print(i == given ? "|" : "", is_known(id) ? text->push(id) : byte_text(id));
    }
    print(text ? text->finish() : "", "\n---\n");
    std::fflush(stdout);
  }

  const TrainOptions& options_;
  const RunData& data_;
  const TransformerConfig config_;
  /// One of them is null.
  const std::shared_ptr<PipelinedTransformer> pipeline_;
  const std::unique_ptr<ParallelTransformer> whole_;
  const DeviceMesh mesh_;
  Module& model_;
  const Device device_;
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<Trainer> trainer_;
  std::optional<TraceScope> trace_;
};

}  // namespace

/// The config of --model or --init; without either, of the checkpoint that --resume names.
static TransformerConfig config_of(const TrainOptions& options) {
  if (!options.parallel.model.empty()) return transformer_config(options.parallel.model);
  if (!options.init.empty()) return config_of_weights(options.init);
  std::string weights = options.checkpoints.resume;
  if (!is_directory(weights)) return transformer_config("tiny");
  if (!is_hugging_face(weights)) {
    weights = complete_checkpoint(weights, {}, start_of(options.checkpoints));
  }
  return weights.empty() ? transformer_config("tiny") : config_of_weights(weights);
}

/// A model with rotary positions takes longer rows than it was made for, but loses what it learnt
/// of positions, and scaled ones change.
static void check_positions(const TrainOptions& options, const TransformerConfig& config) {
  const int64_t seq = options.parallel.seq;
  const std::string& model = options.init.empty() ? options.parallel.model : options.init;
  const bool is_preset = model.empty() || model == "tiny" || model == "small";
  if (seq <= config.max_sequence || config.learned_positions || is_preset) return;
  if (!options.init.empty() && !is_hugging_face(model)) {
    return warn("warning: --seq is ", seq, ", above ", config.max_sequence, ", the positions of ",
                model);
  }
  fail("--seq is ", seq, ", expected at most ", config.max_sequence, ", the positions of ", model,
       "; for longer rows raise max_position_embeddings in its config.json");
}

static RunData opened_data(const TrainOptions& options, const TransformerConfig& config) {
  DataOptions rows{.paths = options.data,
                   .sequence = options.parallel.seq,
                   .vocabulary = config.vocabulary,
                   .seed = options.seed};
  const std::string& save = options.checkpoints.save;
  const bool keeps = !save.empty() && !is_object_path(save);
  rows.cache = !keeps ? "" : (std::filesystem::path(save) / "tokens").string();
  std::string model = tokenizer_in(options.init);
  if (model.empty()) model = tokenizer_in(options.parallel.model);
  if (model.empty() && options.init.empty()) model = tokenizer_in(options.checkpoints.resume);
  apply(options.rows, model, rows);
  if (options.validation.empty()) {
    return {split_text_dataset(rows, options.parallel.batch), rows.tokenizer};
  }
  DataOptions others = rows;
  others.paths = options.validation;
  others.weights.clear();
  return {{text_dataset(rows), text_dataset(others)}, rows.tokenizer};
}

void train(const TrainOptions& given) {
  outlive_readers();
  check_output_files(given);
  const TransformerConfig made = config_of(given);
  check_positions(given, made);
  const TransformerConfig config = with_flags(made, given.parallel);
  TrainOptions options = given;
  // Text is tokenised while ranks meet and make their models.
  const RunData data = opened_data(options, config);
  complete(options, config);
  for (const int64_t id : tokens_of(options.prompt, data.tokenizer)) {
    if (id < config.vocabulary) continue;
    fail("--prompt: ", data.tokenizer ? "token" : "byte", " is ", id, ", expected one below ",
         config.vocabulary, ", the model's vocabulary");
  }
  const RunDescription run = described(options, config);
  // Read while ranks meet and make their models.
  const bool compares = launched_ranks() > 1 || !options.checkpoints.save.empty() ||
                        !options.checkpoints.resume.empty();
  const Digests digests = std::async(std::launch::async, [&] {
    return compares ? digests_of_weights(options) : std::vector<RunItem>();
  });
  const std::chrono::milliseconds deadline(static_cast<int64_t>(options.deadline * 1000));
  run_world(options.ranks,
            [&](Communicator world) {
              check_same_flags(world);
              RunDescription own = run;
              own.check_ranks(world);
              Training(options, config, data, world).run(own, digests);
            },
            {.deadline = deadline, .threads_per_rank = options.threads, .seed = options.seed});
}

}  // namespace weft::cli

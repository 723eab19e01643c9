// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>
#include <optional>
#include <random>

#include "cli/commands.h"
#include "cli/data.h"
#include "cli/progress.h"
#include "cli/resume.h"
#include "cli/run_description.h"
#include "cli/step_cost.h"
#include "cli/train_options.h"
#include "cli/used_tokens.h"
#include "cli/weights.h"
#include "weft/autograd.h"
#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/saved_model.h"
#include "weft/fsdp.h"
#include "weft/generate.h"
#include "weft/graph.h"
#include "weft/ops.h"
#include "weft/optimizers.h"
#include "weft/ranks.h"
#include "weft/trace.h"
#include "weft/transformer.h"

namespace weft::cli {

using Clock = std::chrono::steady_clock;
/// Validations in a run, and the batches of each.
static constexpr int64_t kValidations = 10, kValidationBatches = 4;

namespace {

struct Batch {
  Tensor ids, targets;
};

/// One rank's training.
class Training {
 public:
  Training(const TrainOptions& options, const TransformerConfig& config, const TokenData& data,
           const Communicator& world, const RunDescription& run)
      : options_(options),
        data_(data),
        run_(run),
        llama_(world, config, options.parallel),
        mesh_(llama_.mesh()),
        model_(llama_.model()),
        device_(device_of_rank(options.device, world.rank())),
        peak_rate_(peak_rate(options, config, device_, world.size())) {
    if (options.deterministic) use_deterministic_algorithms(true);
    llama_.shard();
    model_.materialize(device_);
    if (!options.init.empty()) load_weights(model_, options.init);
    AdamWOptions adamw = adamw_options(options);
    adamw.offload = options.parallel.choice.state;
    optimizer_.emplace(model_.named_parameters(), adamw);
    if (options.cuda_graph) graph_.emplace(device_);
    if (is_first()) check_writable("--trace", options.trace);
    const Box rows = empty_batch().box();
    used_.emplace(world, data, RowRange{rows.offset[0], rows.shape[0]});
    saver_.emplace(options.checkpoints, world, model_, *optimizer_, *used_);
  }

  /// `digests` are those of the run's files, which all ranks compare first.
  void run(const std::vector<RunItem>& digests) {
    if (is_first()) describe();
    if (is_first() && data_.stream().is_text()) warn_of_bytes(model_.config().vocabulary);
    for (const RunItem& digest : digests) run_.add(digest);
    run_.check_ranks(mesh_.communicator());
    const ResumeOptions& c = options_.checkpoints;
    if (!c.save.empty()) check_kept_model_files(c.save);
    const std::vector<Hyperparameter> options = optimizer_->hyperparameters(0);
    std::vector<double> given;
    for (const Hyperparameter& option : options) given.push_back(option.get());
    int64_t done = saver_->resume(run_);
    // The flags decide, and not the checkpoint: --allow-change permits others.
    for (size_t i = 0; i < options.size(); ++i) options[i].set(given[i]);
    const bool is_new = done == 0 && !options_.init.empty();
    if (is_first()) keep_files(is_new ? options_.init : c.resume, c.save);
    // Only the holder of the lease of --save's directory touches the metrics.
    if (is_first()) progress_.emplace(options_.metrics, options_.steps, done);
    if (launched_ranks() > 1) check_replicas(model_);
    if (done >= options_.steps && is_first()) {
      print(done, " steps are done already; more need --steps above that\n");
    }
    const std::optional<StepSeconds> predicted = prediction();
    if (is_first()) set_aside("--trace", options_.trace);
    if (!options_.trace.empty()) trace_.emplace();
    const bool is_done = run_steps(done);
    saver_->end_steps();
    if (trace_ && is_first()) report_trace(*trace_, device_, predicted);
    if (trace_) trace_->write(mesh_.communicator(), options_.trace);
    if (is_done && options_.sample > 0) print_sample();
  }

 private:
  bool is_first() const { return mesh_.rank() == 0; }

  /// Tokens a second of all devices at their peak; nothing where that is not known.
  static std::optional<double> peak_rate(const TrainOptions& options,
                                         const TransformerConfig& config, Device device,
                                         int ranks) {
    std::optional<double> peak = peak_operations(device_name(device), options.parallel);
    if (options.peak_tflops > 0) peak = 1e12 * options.peak_tflops;
    if (!peak) return {};
    return *peak * devices_of_ranks(options.device, ranks) /
           needed_operations_a_token(config, options.parallel.seq);
  }

  /// Predicted times of a step on rank 0's GPU; empty without a trace or for an unknown GPU.
  std::optional<StepSeconds> prediction() const {
    if (options_.trace.empty() || !is_first() || device_ == cpu) return {};
    const auto machine = machine_of_device(device_name(device_), options_.parallel.dtype);
    if (!machine) return {};
    const int ranks = mesh_.communicator().size();
    const int a_host = launched_ranks() > 1 ? launched_local_rank().size : ranks;
    if (a_host == 0) return {};
    return predicted_step(*machine, model_.config(), options_.parallel, ranks, a_host);
  }

  /// Runs the steps after `done`; returns false when a signal stopped the run.
  bool run_steps(int64_t done) {
    const int64_t every = std::max<int64_t>(1, options_.steps / kValidations);
    started_ = Clock::now();
    for (int64_t step = done + 1; step <= options_.steps; ++step) {
      StepReport report = train_step(step);
      bool validates = step % every == 0 || step == options_.steps;
      if (validates) report.validation_loss = loss_of_validation();
      if (validates) used_->compare();
      if (is_first()) progress_->report(report);
      const double validation_loss = report.validation_loss.value_or(0);
      if (!options_.checkpoints.save_non_finite) {
        check_finite(step, "validation loss", validation_loss);
      }
      const bool stops = saver_->after_step(step, step == options_.steps);
      check_finite(step, "validation loss", validation_loss);
      if (!stops) continue;
      if (is_first()) {
        print("stopped at step ", step, " of ", options_.steps, "; go on with --resume ",
              printable(options_.checkpoints.save), '\n');
      }
      return false;
    }
    return true;
  }

  void describe() const {
    int64_t parameters = 0;
    for (const ParameterPtr& parameter : model_.parameters())
      parameters += parameter->shape().product();
    const std::string device =
        device_ == cpu ? "" : concat(" of ", options_.device, " (", device_name(device_), ')');
    const int threads = Context::current().threads;
    print(data_.stream().size(), " tokens in ", data_.stream().paths().size(),
          " files; a model of ", parameters, " parameters on ", mesh_, device, ", ", threads,
          threads == 1 ? " thread" : " threads", " a rank\n");
    if (!options_.memory_plan.empty()) print(options_.memory_plan, '\n');
    std::fflush(stdout);
  }

  /// Memory for a micro-batch's ids, or targets.
  Tensor empty_batch() const {
    return empty({llama_.micro_batch(), options_.parallel.seq}, {DType::i64, cpu, llama_.rows()});
  }

  /// This rank's rows of the micro-batch that begins at row `first` of the batch of `step` (0: of
  /// the held-out rows), as parts of the whole.
  Batch batch(int64_t step, int64_t first) {
    const Batch rows{empty_batch(), empty_batch()};
    const auto local = static_cast<size_t>(rows.ids.block().numel());
    used_->read(step, first, std::span(rows.ids.block().as<int64_t>(), local),
                std::span(rows.targets.block().as<int64_t>(), local));
    return {rows.ids.to(device_), rows.targets.to(device_)};
  }

  /// The batches of a step, one for each micro-step.
  std::vector<Batch> batches(int64_t step) {
    std::vector<Batch> all;
    for (int64_t micro_step = 0; micro_step < options_.parallel.accumulate; ++micro_step) {
      all.push_back(batch(step, micro_step * llama_.micro_batch()));
    }
    return all;
  }

  /// Leaves gradients, their norm, and the loss of each micro-step.
  void differentiate(const std::vector<Batch>& all) {
    optimizer_->zero_grad();
    losses_.clear();
    for (const Batch& rows : all) {
      const auto micro_step = static_cast<int64_t>(losses_.size());
      losses_.push_back(llama_.train(rows.ids, rows.targets, micro_step).full_tensor());
    }
    norm_ = gradient_norm(model_.parameters());
  }

  /// The same as a graph, of batches that are always in one place, and the update with it.
  void step_by_graph(const std::vector<Batch>& all) {
    for (size_t i = 0; i < fixed_.size(); ++i) {
      copy_(fixed_[i].ids, all[i].ids);
      copy_(fixed_[i].targets, all[i].targets);
    }
    if (fixed_.empty()) fixed_ = all;
    const TraceSpan span("graph", -1, device_);
    graph_->run([this] {
      differentiate(fixed_);
      if (graph_updates()) update();
    });
  }

  /// State that rests elsewhere is waited for.
  bool graph_updates() const { return graph_ && !options_.parallel.choice.state.offloads(); }

  void update() {
    const TraceSpan span("update", -1, device_);
    optimizer_->step(clip_scale(norm_, options_.clip));
  }

  StepReport train_step(int64_t step) {
    const TraceSpan span("step", step);
    auto began = Clock::now();
    int64_t moved = mesh_.traffic().bytes;
    PurposeScope purpose(Purpose::activations);
    optimizer_->set_learning_rate(schedule_of(options_)(step - 1));
    graph_ ? step_by_graph(batches(step)) : differentiate(batches(step));
    double loss = 0;
    for (const Tensor& part : losses_) loss += part.item();
    loss /= static_cast<double>(options_.parallel.accumulate);
    const double norm = norm_.item();
    check_finite(step, "loss", loss);
    check_finite(step, "norm of the gradients", norm);
    if (!graph_updates()) update();

    StepReport report;
    report.experts = end_step_of_experts(model_, options_.stated_balance_rate());
    report.step = step;
    report.loss = loss;
    report.learning_rate = optimizer_->learning_rate();
    report.gradient_norm = norm;
    auto now = Clock::now();
    report.tokens_per_second =
        static_cast<double>(options_.parallel.batch * options_.parallel.seq) /
        std::chrono::duration<double>(now - began).count();
    if (peak_rate_) report.utilization = report.tokens_per_second / *peak_rate_;
    report.seconds = std::chrono::duration<double>(now - started_).count();
    report.bytes_moved = mesh_.traffic().bytes - moved;
    report.memory = memory_statistics(device_.kind);
    return report;
  }

  /// Before the weights change by it, or, where a graph does all, before they are saved.
  static void check_finite(int64_t step, const char* what, double value) {
    if (value - value == 0) return;
    fail_call("train", "the ", what, " at step ", step, " is ", value, "; a smaller --lr may help");
  }

  double loss_of_validation() {
    const TraceSpan span("validation");
    NoGrad no_grad;
    model_.set_training(false);
    int64_t batches = std::min(data_.validation_rows() / llama_.micro_batch(),
                               kValidationBatches * options_.parallel.accumulate);
    double sum = 0;
    for (int64_t i = 0; i < batches; ++i) {
      const Batch rows = batch(0, i * llama_.micro_batch());
      sum += model_.loss(rows.ids, rows.targets).full_tensor().item();
    }
    model_.set_training(true);
    return sum / static_cast<double>(batches);
  }

  /// The first tokens of the sample: the prompt's bytes, or the first held-out tokens.
  std::vector<int64_t> prompt() const {
    std::vector<int64_t> tokens(options_.prompt.begin(), options_.prompt.end());
    for (int64_t& token : tokens) token &= 0xff;
    if (!tokens.empty()) return tokens;
    std::vector<int64_t> ids(static_cast<size_t>(options_.parallel.seq)), targets(ids.size());
    data_.validation(0, ids, targets);
    ids.resize(std::min<size_t>(ids.size(), 64));
    return ids;
  }

  /// Adds --sample tokens, drawn from the model's distribution at temperature 0.7; the model sees
  /// --seq tokens at once. Collective: all ranks draw alike.
  void continue_tokens(std::vector<int64_t>& tokens) {
    const NoGrad no_grad;
    model_.set_training(false);
    std::mt19937_64 random(options_.seed);
    const int64_t context = options_.parallel.seq;
    for (int64_t i = 0; i < options_.sample; ++i) {
      const int64_t seen = std::min(std::ssize(tokens), context);
      // Causal attention keeps what pads a row from its tokens, and the shapes stay equal.
      std::vector<double> row(tokens.end() - seen, tokens.end());
      row.resize(static_cast<size_t>(context));
      const Tensor all =
          model_(from_values(row, {1, context}, {DType::i64, device_, Sharding(mesh_, {})}));
      const Tensor last = slice(all, 1, seen - 1, seen).full_tensor();
      const auto weights = next_probabilities(last.to_vector<double>(), {}, {.temperature = 0.7});
      std::discrete_distribution<int64_t> draw(weights.begin(), weights.end());
      tokens.push_back(draw(random));
    }
    model_.set_training(true);
  }

  void print_sample() {
    std::vector<int64_t> tokens = prompt();
    const size_t given = tokens.size();
    continue_tokens(tokens);
    if (!is_first()) return;
    print("--- sample, after ", given, " given tokens\n");
    for (size_t i = 0; i < tokens.size(); ++i) {
      print(i == given ? "|" : "", byte_text(tokens[i]));
    }
    print("\n---\n");
    std::fflush(stdout);
  }

  const TrainOptions& options_;
  const TokenData& data_;
  RunDescription run_;
  ParallelTransformer llama_;
  const DeviceMesh mesh_;
  TransformerModel& model_;
  const Device device_;
  const std::optional<double> peak_rate_;
  std::optional<AdamW> optimizer_;
  /// Results of the last step.
  Tensors losses_;
  Tensor norm_;
  /// The input buffers of the graph's steps, and the graph.
  std::vector<Batch> fixed_;
  std::optional<Graph> graph_;
  std::optional<UsedTokens> used_;
  std::optional<RunSaver> saver_;
  /// Rank 0's.
  std::optional<Progress> progress_;
  std::optional<TraceScope> trace_;
  Clock::time_point started_;
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

void train(const TrainOptions& given) {
  outlive_readers();
  check_output_files(given);
  const TransformerConfig config = with_flags(config_of(given), given.parallel);
  TrainOptions options = given;
  TokenData data(options.data, {config.vocabulary, options.parallel.batch, options.parallel.seq},
                 options.seed);
  complete(options, config);
  for (char byte : options.prompt) {
    if ((byte & 0xff) < config.vocabulary) continue;
    fail("--prompt: byte is ", byte & 0xff, ", expected one below ", config.vocabulary,
         ", the model's vocabulary");
  }
  const RunDescription run = described(options, config, data.stream());
  // Read while ranks meet and make their models.
  const bool compares = launched_ranks() > 1 || !options.checkpoints.save.empty() ||
                        !options.checkpoints.resume.empty();
  const std::shared_future<std::vector<RunItem>> digests = std::async(std::launch::async, [&] {
    return compares ? digests_of_files(options, data.stream()) : std::vector<RunItem>();
  });
  const std::chrono::milliseconds deadline(static_cast<int64_t>(options.deadline * 1000));
  run_world(options.ranks,
            [&](Communicator world) {
              check_same_flags(world);
              RunDescription own = run;
              own.check_ranks(world);
              Training(options, config, data, world, own).run(digests.get());
            },
            {.deadline = deadline, .threads_per_rank = options.threads, .seed = options.seed});
}

}  // namespace weft::cli

// SPDX-License-Identifier: Apache-2.0
#include "train/run.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <sstream>
#include <utility>

#include "train/option_names.h"
#include "weft/error.h"
#include "weft/extend/hash.h"
#include "weft/extend/saved_model.h"
#include "weft/fsdp.h"
#include "weft/fsdp_module.h"
#include "weft/optimizers.h"
#include "weft/pipelined_transformer.h"
#include "weft/ranks.h"
#include "weft/trace.h"
#include "weft/transformer.h"

namespace weft {

/// The loss of a TransformerModel.
static Trainer::Loss loss_of_model(Module& model) {
  auto* transformer = dynamic_cast<TransformerModel*>(&model);
  if (!transformer) {
    fail("trainer: loss is empty, expected a function, for the model is not a TransformerModel");
  }
  return [transformer](const Trainer::Batch& batch) {
    return transformer->loss(batch.ids, batch.targets, {.segments = batch.segments});
  };
}

/// The scale's options, without effect for a model that does not compute in f16.
static LossScalerOptions scaler_of(LossScalerOptions given, Module& model) {
  const bool is_f16 = FsdpModule::computes_in(model, f16) ||
                      std::ranges::any_of(model.parameters(), [](const ParameterPtr& parameter) {
                        return parameter->is_trainable() && parameter->dtype() == f16;
                      });
  given.enabled = given.enabled && is_f16;
  return given;
}

Trainer::Run::Run(Module& model, std::shared_ptr<const Dataset> data, Optimizer& optimizer,
                  const Sharding& rows, TrainerOptions options, Loss loss)
    : options_(std::move(options)),
      model_(model),
      data_(std::move(data)),
      optimizer_(optimizer),
      rows_(rows),
      mesh_(rows ? rows.mesh() : DeviceMesh()),
      balanced_(options_.pipeline ? nullptr : dynamic_cast<const TransformerModel*>(&model)),
      loss_(loss || options_.pipeline ? std::move(loss) : loss_of_model(model)),
      policies_(options_, model, numbers_),
      scaler_(scaler_of(options_.scaler, model)) {
  check_options();
  for (const NamedParameter& named : optimizer_.parameters()) updated_.push_back(named.parameter);
  if (options_.reproducible) check_reproducible();
  rows_at_once_ = options_.reproducible ? rows_in_tree() : options_.batch / options_.accumulate;
  for (const RunItem& item : options_.items) description_.add(item);
  if (options_.graph) graph_.emplace(options_.device);
  const Box own = empty_rows().box();
  used_.emplace(mesh_.communicator(), *data_, options_.validation.get(), options_.batch,
                RowRange{own.offset[0], own.shape[0]});
  if (options_.ema > 0) ema_.emplace(optimizer_.parameters(), options_.ema);
  note_rate(0);
  saver_.emplace(options_, mesh_.communicator(), model_, optimizer_, ema_ ? &*ema_ : nullptr,
                 *used_, numbers_);
  if (is_scaled()) take_scale();
}

void Trainer::Run::check_options() const {
  if (!data_) fail("trainer: data is null, expected a dataset");
  if (!rows_) fail("trainer: rows have no mesh, expected a sharding over one, such as {Shard(0)}");
  const TrainerOptions& o = options_;
  if (o.pipeline) check_pipeline();
  if (o.accumulate < 1) fail("trainer: accumulate is ", o.accumulate, ", expected at least 1");
  if (o.batch < 1 || o.batch % o.accumulate != 0) {
    fail("trainer: batch is ", o.batch, ", expected a multiple of accumulate, ", o.accumulate);
  }
  if (o.steps < 1) fail("trainer: steps is ", o.steps, ", expected at least 1");
  if (!(o.clip >= 0)) fail("trainer: clip is ", o.clip, ", expected at least 0");
  if (!(o.clip_value >= 0)) {
    fail("trainer: clip_value is ", o.clip_value, ", expected at least 0");
  }
  if (!(o.ema >= 0 && o.ema < 1)) {
    fail("trainer: ema is ", o.ema, ", expected a decay of at least 0 and below 1");
  }
  if (o.ema > 0 && o.pipeline) {
    fail("trainer: ema is ", o.ema, ", expected 0 for the stages of a pipeline");
  }
  if (o.validation && o.validation->sequence() != data_->sequence()) {
    fail("trainer: validation has rows of ", o.validation->sequence(), " tokens, expected ",
         data_->sequence(), ", as the data has");
  }
  if (o.validate_every > 0 && !o.validation) {
    fail("trainer: validation is null, expected a dataset for validate_every");
  }
  if (!(o.spike >= 0)) fail("trainer: spike is ", o.spike, ", expected at least 0");
  if (o.validation && o.validation_batches == 0 && o.validation->rows() >= Dataset::kEndless) {
    fail("trainer: validation has no end, expected validation_batches above 0");
  }
  const std::pair<const char*, int64_t> counts[] = {
      {"validate_every", o.validate_every}, {"validation_batches", o.validation_batches},
      {"most_skipped", o.most_skipped},     {"patience", o.patience},
      {"check_replicas", o.check_replicas}, {"save_every", o.checkpoints.save_every},
      {"keep", o.checkpoints.keep}};
  for (const auto& [name, count] : counts) {
    if (count < 0) fail("trainer: ", name, " is ", count, ", expected at least 0");
  }
  if ((o.patience > 0 || o.keep_best) && !o.validation) {
    fail("trainer: validation is null, expected a dataset for ",
         o.keep_best ? "keep_best" : "patience");
  }
  if (o.keep_best && o.checkpoints.save.empty()) {
    fail("trainer: save is empty, expected a folder for keep_best");
  }
  for (const NamedParameter& named : optimizer_.parameters()) {
    const DeviceMesh& holds = o.pipeline ? o.pipeline->stage_mesh() : mesh_;
    if (holds.size() == 1 || named.parameter->value().is_sharded()) continue;
    fail("trainer: parameter ", named.name(), " is on one rank, expected it on ", mesh_,
         ", the mesh of the rows; call fully_shard or ddp first");
  }
  if (o.graph && is_scaled()) {
    fail("trainer: the model computes in f16, expected f32 or bf16 for graph");
  }
  if (o.graph && data_->has_masks()) {
    fail("trainer: data may have masked targets, expected none for graph");
  }
  check_directories(o.checkpoints);
}

void Trainer::Run::check_pipeline() const {
  PipelinedTransformer& pipeline = *options_.pipeline;
  if (!(mesh_ == pipeline.mesh())) {
    fail("trainer: mesh of the rows is ", mesh_, ", expected that of the pipeline, ",
         pipeline.mesh());
  }
  const int most = pipeline.pipeline().program().microbatches;
  if (options_.accumulate > most) {
    fail("trainer: accumulate is ", options_.accumulate, ", expected at most ", most,
         ", the microbatches of the pipeline's program");
  }
  if (loss_ || options_.graph) {
    fail("trainer: ", loss_ ? "loss" : "graph", " is given with a pipeline, expected one of them");
  }
}

Tensor Trainer::Run::empty_rows() const {
  return empty({micro_batch(), data_->sequence()}, {DType::i64, cpu, rows_});
}

void Trainer::Run::add_digests() {
  const ResumeOptions& c = options_.checkpoints;
  if (launched_ranks() == 1 && c.save.empty() && c.resume.empty()) return;
  const auto digests_in_words = [&] {
    return listed(
        data_->digests(), [](const auto& d) { return concat(d.second, ' ', d.first, '\n'); }, "");
  };
  // Threads have one copy of the data; processes each check their own.
  const bool is_shared = launched_ranks() == 1;
  std::istringstream lines(is_shared ? told_by_first(mesh_.communicator(), digests_in_words)
                                     : digests_in_words());
  Digest digest = 0;
  std::string name;
  while (lines >> digest && std::getline(lines.ignore(), name)) {
    if (name.ends_with("names")) {
      description_.add({name, digest, Resumed::noted, "the contents are the same", true});
    } else {
      description_.add({name, digest, Resumed::allowed, "data"});
    }
  }
}

static constexpr const char* kRounding = "results differ by rounding";

/// A digest of the names, shapes and dtypes of a model's parameters.
static Digest digest_of_parameters(const Module& model) {
  const std::string text = listed(model.named_parameters(), [](const NamedParameter& named) {
    return concat(named.name(), named.parameter->shape(), named.parameter->value().dtype());
  });
  return xxh3_of(std::as_bytes(std::span(text)));
}

/// Adds what the program adds for its runs.
void Trainer::Run::describe() {
  if (!options_.describes) return;
  const TransformerModel* transformer = options_.pipeline
                                            ? options_.pipeline->stages()[0].get()
                                            : dynamic_cast<const TransformerModel*>(&model_);
  if (transformer) add_model(transformer->config(), description_);
  if (!transformer) {
    description_.add({"model", digest_of_parameters(model_), Resumed::refused});
  }
  const auto allowed = [&](const std::string& name, auto value) {
    description_.add({name, value, Resumed::allowed, name});
  };
  allowed("seed", static_cast<int64_t>(Context::current().random.seed));
  allowed("batch", options_.batch);
  allowed("seq", data_->sequence());
  description_.add({"optimizer", listed(optimizer_.moments()), Resumed::refused});
  for (size_t group = 0; group < optimizer_.groups(); ++group) {
    for (const Hyperparameter& option : optimizer_.hyperparameters(group)) {
      std::string name(option.name);
      std::ranges::replace(name, '_', '-');
      description_.add({group == 0 ? name : concat(name, " of group ", group), option.get(),
                        Resumed::allowed, name});
    }
  }
  allowed("clip", options_.clip);
  allowed("clip-value", options_.clip_value > 0 ? concat(options_.clip_value) : "");
  allowed("reproducible", options_.reproducible ? "yes" : "");
  description_.add({"rows", data_->rows(), Resumed::allowed, "data"});
  description_.add({"steps", options_.steps, Resumed::noted, "the run ends at another step"});
  description_.add({"accumulate", options_.accumulate, Resumed::noted, kRounding});
  description_.add({"mesh", concat(mesh_), Resumed::noted, kRounding});
  description_.add({"build", build_in_words(), Resumed::noted, kRounding});
}

/// The options of an optimizer's groups, one after the other.
static std::vector<Hyperparameter> options_of(Optimizer& optimizer) {
  std::vector<Hyperparameter> all;
  for (size_t group = 0; group < optimizer.groups(); ++group) {
    const std::vector<Hyperparameter> own = optimizer.hyperparameters(group);
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

/// The options that ranks must share, a line each, with the rates of some steps.
static std::string shared_options(const TrainerOptions& o) {
  std::ostringstream lines;
  const auto add = [&](const char* name, const auto& value) {
    lines << name << ' ' << value << '\n';
  };
  add("batch", o.batch);
  add("accumulate", o.accumulate);
  add("steps", o.steps);
  add("clip", o.clip);
  add("clip_value", o.clip_value);
  add("ema", o.ema);
  add("validate_every", o.validate_every);
  add("validation_batches", o.validation_batches);
  add("rows to validate on", o.validation ? o.validation->rows() : 0);
  add("spike", o.spike);
  add("on_spike", static_cast<int>(o.on_spike));
  add("on_non_finite", static_cast<int>(o.on_non_finite));
  add("most_skipped", o.most_skipped);
  add("patience", o.patience);
  add("keep_best", o.keep_best);
  add("save", o.checkpoints.save);
  add("save_every", o.checkpoints.save_every);
  add("resume", o.checkpoints.resume);
  add("graph", o.graph);
  add("reproducible", o.reproducible);
  for (const int64_t step : {int64_t{0}, o.steps / 2, o.steps - 1}) {
    if (o.schedule) add("learning rate", o.schedule(step));
  }
  return lines.str();
}

void Trainer::Run::compare_options() const {
  const Communicator& world = mesh_.communicator();
  const std::string own = shared_options(options_), first = world.broadcast(own, 0);
  std::istringstream here(own), there(first);
  std::string mistake, one, other;
  while (mistake.empty() && std::getline(here, one) && std::getline(there, other)) {
    if (one == other) continue;
    mistake = concat("trainer: rank ", world.rank(), " has ", one, ", expected ", other,
                     " as rank 0 has");
  }
  fail_on_all_ranks(world, mistake);
}

int64_t Trainer::Run::resume() {
  if (std::exchange(is_resumed_, true)) return done_;
  compare_options();
  describe();
  add_digests();
  description_.check_ranks(mesh_.communicator());
  const ResumeOptions& c = options_.checkpoints;
  if (!c.save.empty()) check_kept_model_files(c.save);
  note_rates();
  const std::vector<Hyperparameter> options = options_of(optimizer_);
  std::vector<double> given;
  for (const Hyperparameter& option : options) given.push_back(option.get());
  done_ = saver_->resume(description_);
  if (is_scaled()) {
    scaler_.set(std::bit_cast<double>(numbers_["loss_scale"]), numbers_["loss_scale_steps"]);
  }
  // The options decide, and not the checkpoint: `allow_change` permits others.
  for (size_t i = 0; i < options.size(); ++i) options[i].set(given[i]);
  if (ema_) ema_->set_decay(options_.ema);
  begin_rates();
  const bool is_new = done_ == 0 && !options_.model_files.empty();
  if (is_first()) keep_files(is_new ? options_.model_files : c.resume, c.save);
  // Only the holder of the lease of the run's folder touches the metrics.
  if (is_first()) progress_.emplace(options_, done_);
  if (policies_.begins_best_anew(done_)) {
    tell("the rows to validate on have changed: the lowest validation loss begins anew");
  }
  if (launched_ranks() > 1) check_replicas(model_);
  is_over_ = policies_.is_patience_over();
  if (is_over_) tell_end_by_patience();
  if (!is_over_ && done_ >= options_.steps) {
    tell(concat(done_, " steps are done already; more need ", option_name("steps", c.are_flags),
                " above that"));
  }
  return done_;
}

bool Trainer::Run::validates_after(int64_t step) const {
  if (!options_.validation) return false;
  const int64_t every = options_.validate_every;
  return step == options_.steps || (every > 0 && step % every == 0);
}

bool Trainer::Run::run() {
  resume();
  started_ = Clock::now();
  bool ends = false;
  while (!ends && !is_over_ && done_ < options_.steps) {
    StepReport report = train_step(done_ + 1);
    ends = end_step(report);
  }
  saver_->end_steps();
  stops_ = false;
  if (ends && is_first() && options_.tell) {
    const ResumeOptions& c = options_.checkpoints;
    options_.tell(concat(
        "stopped at step ", done_, " of ", options_.steps, c.save.empty() ? "" : "; go on with ",
        c.save.empty() ? "" : option_name("resume", c.are_flags) + ' ', printable(c.save)));
  }
  return !ends;
}

void Trainer::Run::tell_end_by_patience() const {
  tell(concat("the run ends at step ", done_, ": ", policies_.best_in_words(), ", and ",
              options_.patience, " validations in a row found no lower one"));
}

/// Returns true when the run ends before its last step.
bool Trainer::Run::end_step(StepReport& report) {
  const int64_t step = report.step;
  const bool validates = validates_after(step);
  const auto began = Clock::now();
  if (validates) report.validation_loss = evaluate();
  if (validates) report.parts.validation = seconds_since(began);
  if (validates || step == options_.steps) used_->compare();
  if (progress_) progress_->report(report);
  if (options_.on_step) options_.on_step(report);
  const double validation_loss = report.validation_loss.value_or(0);
  if (validates && options_.on_evaluation) options_.on_evaluation(step, validation_loss);
  if (!options_.checkpoints.save_non_finite) {
    policies_.check_finite(step, "validation loss", validation_loss);
  }
  done_ = step;
  note_rate(step);
  const bool is_best = validates && policies_.note_validation(step, validation_loss);
  if (is_best && options_.keep_best) saver_->save_best(step);
  is_over_ = step == options_.steps || (validates && policies_.is_patience_over());
  compare_ranks(report.parts, step);
  const int64_t every = options_.check_replicas;
  if (every > 0 && step % every == 0) check_bits(step);
  const auto saving = Clock::now();
  const bool ends = saver_->after_step(step, is_over_, stops_);
  save_seconds_ = seconds_since(saving);
  policies_.check_finite(step, "validation loss", validation_loss);
  if (is_over_ && step < options_.steps) tell_end_by_patience();
  if (is_over_ && options_.keep_best) {
    tell(concat(policies_.best_in_words(), "; that model is in ",
                printable(options_.checkpoints.save), "/best"));
  }
  return ends;
}

}  // namespace weft

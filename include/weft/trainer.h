// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/dataset.h"
#include "weft/device.h"
#include "weft/export.h"
#include "weft/extend/run_description.h"
#include "weft/loss_scaler.h"
#include "weft/module.h"
#include "weft/sharding.h"
#include "weft/step_report.h"

namespace weft {

class PipelinedTransformer;
/// The rows of one micro-step over all ranks, laid out as Trainer's `rows` say.
struct TrainingBatch {
  /// i64 [rows, sequence]; targets are kIgnoredTarget where a token does not count.
  Tensor ids, targets;
  /// The same; empty unless the dataset has segments.
  Tensor segments = {};
};

/// The folder of a run's checkpoints, how often it saves, and which checkpoint it resumes from.
struct ResumeOptions {
  /// Empty: nothing is saved.
  std::string save = {};
  /// Steps between checkpoints; 0: only the last step is saved.
  int64_t save_every = 0;
  /// Complete checkpoints to keep in addition to the newest; 0: all.
  int keep = 3;
  bool save_non_finite = false;
  double lease_seconds = 60;
  /// A run's folder or a checkpoint. With the folder of `save` it need not exist.
  std::string resume = {};
  /// Settings in which this run may differ from the one that it resumes, and "start": it begins at
  /// step 1 where all checkpoints have lost files or are damaged.
  std::vector<std::string> allow_change = {};
  /// Save and end at SIGTERM, SIGINT, SIGUSR2 and SIGHUP.
  bool heeds_signals = false;
  /// Errors call the options as the program does: "--allow-change".
  bool are_flags = false;
};

/// Says what a step does whose gradients should not be used: the run ends, or the step is skipped.
enum class OnTrouble : uint8_t { stop, skip };

struct TrainerOptions {
  /// Rows of a step over all ranks, a multiple of `accumulate`, its micro-steps.
  int64_t batch = 16, accumulate = 1;
  int64_t steps = 100;
  /// Largest norm of the gradients; 0: any.
  double clip = 1;
  /// Largest magnitude of an element of the gradients, before the norm; 0: any.
  double clip_value = 0;
  /// The decay of an average of the parameters (`Ema`), which is saved as the part "ema", and
  /// which validations use in the parameters' place; 0: none.
  double ema = 0;
  /// The learning rate by the steps that are done. Where the groups of the optimizer have different
  /// rates, each has its own where the schedule is highest, and a part of it elsewhere. Empty: as
  /// the optimizer has them.
  std::function<double(int64_t step)> schedule = {};
  /// The device that the model computes on.
  Device device = cpu;
  /// Rows to validate on, if any; steps between (0: the last step only), batches of each (0: all).
  std::shared_ptr<const Dataset> validation = {};
  int64_t validate_every = 0, validation_batches = 0;
  /// A loss or gradient that is not finite ends the run, or leaves the weights as they are.
  OnTrouble on_non_finite = OnTrouble::stop;
  /// The same for a loss above `spike` times the median of the last 32, once there are 8; 0: for
  /// none. Errors and reports name the parameter with the largest gradient.
  double spike = 0;
  OnTrouble on_spike = OnTrouble::stop;
  /// The scale of the loss of a model that computes in f16: overflow skips a step. It is saved.
  LossScalerOptions scaler = {};
  /// The most steps in a row that are skipped.
  int most_skipped = 10;
  /// Steps between checks that ranks with the same parameters hold equal bits (`check_replicas`),
  /// before they are saved: a difference ends the run and names rank and parameter; 0: none.
  int64_t check_replicas = 0;
  /// Losses and weights have the same bits on any number of ranks, threads, micro-steps, and with
  /// any strategy of `fully_shard`: a rank computes one row at a time, and gradients are summed in
  /// one binary tree over the rows of the batch, each time. `accumulate` has no effect. Errors name
  /// what has no such sums.
  bool reproducible = false;
  /// The run ends when so many validations in a row find no lower loss; 0: it goes on.
  int patience = 0;
  /// Saves to the folder "best" of `save` whenever a validation finds a lower loss.
  bool keep_best = false;
  ResumeOptions checkpoints = {};
  /// A Hugging Face model or checkpoint that the weights came from: the run keeps its config and
  /// tokenizer. Empty: those of the run that is resumed.
  std::string model_files = {};
  /// The files to which the first rank writes the figures of each step: "run.jsonl" (any name: a
  /// JSON object a step), "run.csv", event files of TensorBoard ("tensorboard:DIR", "DIR/"), and
  /// "metrics.jsonl" in the folder of checkpoints.
  std::vector<std::string> metrics = {};
  /// Receives, on the first rank, lines on progress without a newline.
  std::function<void(const std::string& line)> tell = {};
  /// Called on all ranks after each step, each validation, and when a checkpoint is complete.
  std::function<void(const StepReport& report)> on_step = {};
  std::function<void(int64_t step, double loss)> on_evaluation = {};
  std::function<void(const std::string& path)> on_save = {};
  /// Change of the biases that balance the load of experts, a step.
  double balance_rate = 1e-3;
  /// Tokens a second of all devices at their peak, of which MFU is a fraction.
  std::optional<double> peak_tokens = {};
  /// Records the third step on a GPU as a Graph, which the next ones replay.
  bool graph = false;
  /// Includes the update in the graph; not where the optimizer's state rests elsewhere.
  bool graph_updates = true;
  /// The model is its `module()`, `rows` are over its mesh.
  std::shared_ptr<PipelinedTransformer> pipeline = {};
  /// More of what decides the numbers of the run. They come before items of the same names that the
  /// trainer adds, such as the seed; those are left out without `describes`.
  std::vector<RunItem> items = {};
  bool describes = true;
};

/// Trains a model: reads rows of a dataset, accumulates gradients, clips them, updates, validates,
/// reports, saves and resumes. One a rank; calls are collective over the mesh of `rows`.
///
/// The gradient of a step is that of the mean loss of the targets that count, over all ranks and
/// micro-steps. A step of which no target counts updates nothing.
/// The trainer compares across ranks what decides the numbers of the run, the digests of the
/// dataset and the rows that ranks read; it throws at a loss or gradient that is not finite.
/// A run that is resumed, on any number of ranks, reads the rows that an uninterrupted one would.
class WEFT_API Trainer : NotCopied {
 public:
  using Batch = TrainingBatch;
  /// The mean loss of the targets of a batch that count. Called without recording gradients to
  /// validate.
  using Loss = std::function<Tensor(const Batch& batch)>;

  /// The model has memory and its final layout: load weights, then shard, then make the optimizer.
  /// `rows` says how the ranks share the rows of a batch, e.g. Sharding(mesh, {Shard(0)}). Without
  /// `loss` the model is a TransformerModel, whose `loss` is used. Model and optimizer must outlive
  /// the trainer. std::invalid_argument names an option that does not fit.
  Trainer(Module& model, std::shared_ptr<const Dataset> data, Optimizer& optimizer,
          const Sharding& rows, TrainerOptions options = {}, Loss loss = {});
  ~Trainer();

  /// Adds to the description of the run, before `resume`.
  void add(RunItem item);
  /// Compares ranks, takes up the checkpoint that the options name, and returns the steps done.
  int64_t resume();
  /// Resumes unless `resume` was called, and runs the remaining steps. Returns false when a signal
  /// or `stop` ended it before the last.
  bool run();
  /// The mean loss of the targets that count in the rows to validate on.
  double evaluate();
  /// The run ends, and is saved, after the step under way, whichever rank calls it.
  void stop();
  int64_t step() const;  ///< Steps done.

 private:
  class Run;
  std::unique_ptr<Run> run_;
};

}  // namespace weft

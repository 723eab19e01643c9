// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/policies.h"
#include "train/progress.h"
#include "train/resume.h"
#include "train/used_tokens.h"
#include "weft/ema.h"
#include "weft/graph.h"
#include "weft/loss_scaler.h"
#include "weft/mesh.h"
#include "weft/trainer.h"

namespace weft {

class TransformerModel;

/// One rank's training.
class Trainer::Run {
 public:
  Run(Module& model, std::shared_ptr<const Dataset> data, Optimizer& optimizer,
      const Sharding& rows, TrainerOptions options, Loss loss);

  void add(RunItem item) { description_.add(std::move(item)); }
  int64_t resume();
  bool run();
  double evaluate();
  void stop() { stops_ = true; }
  int64_t step() const { return done_; }

 private:
  using Clock = std::chrono::steady_clock;
  static double seconds_since(Clock::time_point time) {
    return std::chrono::duration<double>(Clock::now() - time).count();
  }

  /// Rows of a micro-step, with the number of targets of all ranks that count.
  struct MicroBatch {
    Batch rows;
    int64_t counted = 0;
    /// The places up to the last of them in each row; the others are padding.
    int64_t tokens = 0;
  };

  void check_options() const;
  void check_pipeline() const;
  bool is_first() const { return mesh_.rank() == 0; }
  int64_t micro_batch() const { return rows_at_once_; }
  int64_t micro_batches() const { return options_.batch / rows_at_once_; }
  Tensor empty_rows() const;
  /// This rank's rows of the micro-batch that begins at row `first` of the batch of `step` (0: of
  /// the rows to validate on), as parts of the whole. Targets from row `most` on do not count.
  MicroBatch read(int64_t step, int64_t first, int64_t most);
  std::vector<MicroBatch> batches_of(int64_t step);
  void agree_on_counts(std::vector<MicroBatch>& batches) const;
  Tensor loss_of(const Batch& rows);
  Tensor without_balance(const Tensor& loss, const Tensor& earlier) const;
  void differentiate(const std::vector<MicroBatch>& batches);
  void differentiate_whole(const std::vector<MicroBatch>& batches);
  // Of reproducible runs (reproducible.cpp): checks, rows at once, gradients, sums of losses.
  void check_reproducible();
  int64_t rows_in_tree();
  Tensor sum_of_losses(const Batch& rows, double divisor);
  void differentiate_rows(const std::vector<MicroBatch>& batches);
  void differentiate_stages_by_rows(const std::vector<MicroBatch>& batches);
  /// True for an axis whose ranks have the stages of a pipeline.
  bool has_stages(int axis) const { return options_.pipeline && mesh_.axis_name(axis) == "pp"; }
  /// The axes whose two ranks compute the same rows, each half of their sums.
  std::vector<std::string> halved_axes() const;
  void check_halves() const;
  /// True if two ranks along an axis "cp" compute the halves of a row.
  bool halves_rows() const;
  int64_t ranks_with_rows() const;
  double sum_over_rows(std::vector<double> own) const;
  void differentiate_stages(const std::vector<MicroBatch>& batches);
  std::vector<double> validated(const std::vector<Batch>& batches);
  void step_by_graph(const std::vector<MicroBatch>& batches);
  /// Replays the whole step; state that rests elsewhere is waited for.
  bool graph_updates() const { return graph_ && options_.graph_updates && !may_skip(); }
  bool may_skip() const {
    return options_.spike > 0 || options_.on_non_finite == OnTrouble::skip || is_scaled();
  }
  bool is_scaled() const { return scaler_.options().enabled; }
  void update();
  std::string reason_to_skip(StepReport& report);
  void take_scale();
  StepReport train_step(int64_t step);
  int64_t bytes_moved() const;
  void report_figures(StepReport& report, Clock::time_point began, int64_t moved,
                      int64_t tokens) const;
  void describe();
  /// Notes the rate of each group, which the schedule scales.
  void note_rates();
  void set_rates(int64_t done, StepReport& report);
  /// Writes that down, and warns of a schedule that goes on otherwise than that of the run before.
  void begin_rates();
  /// Keeps the rate of the last of so many steps for the next run.
  void note_rate(int64_t done);
  void add_digests();
  bool validates_after(int64_t step) const;
  bool end_step(StepReport& report);
  void check_bits(int64_t step);
  void compare_ranks(const PartSeconds& parts, int64_t step);
  void tell_end_by_patience() const;
  void compare_options() const;
  void tell(const std::string& line) const {
    if (is_first() && options_.tell) options_.tell(line);
  }

  const TrainerOptions options_;
  Module& model_;
  const std::shared_ptr<const Dataset> data_;
  Optimizer& optimizer_;
  /// The parameters that the optimizer updates: others do not count for clipping.
  std::vector<ParameterPtr> updated_;
  const Sharding rows_;
  const DeviceMesh mesh_;
  /// The model whose own loss is `loss_`.
  const TransformerModel* const balanced_;
  const Loss loss_;
  /// Rows of a micro-step over all ranks.
  int64_t rows_at_once_ = 1;
  RunDescription description_;
  /// Checkpoints keep it of the trainer itself.
  std::map<std::string, int64_t> numbers_;
  Policies policies_;
  /// Has no effect unless the model computes in f16; `numbers_` have its state.
  LossScaler scaler_;
  std::optional<Ema> ema_;
  std::optional<UsedTokens> used_;
  std::optional<RunSaver> saver_;
  /// The first rank's.
  std::optional<Progress> progress_;
  /// Losses of the micro-steps of the last step, and the norm of its gradients.
  Tensors losses_;
  Tensor norm_;
  /// The same after elements were clipped.
  Tensor clipped_norm_;
  /// The rate of each group where the schedule is at its peak; empty: all have the schedule's.
  std::vector<double> rates_;
  double peak_ = 0;
  /// The inputs of the graph's steps, and the graph.
  std::vector<MicroBatch> fixed_;
  std::optional<Graph> graph_;
  bool is_resumed_ = false, stops_ = false, is_over_ = false;
  int64_t done_ = 0;
  Clock::time_point started_;
  /// Seconds of this rank's own work since ranks compared it, and what they found.
  double busy_ = 0, slowness_ = 1;
  int slow_rank_ = -1;
  /// Seconds of waiting for saves after the last step.
  double save_seconds_ = 0;
};

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/data_flags.h"
#include "cli/parallel_transformer.h"
#include "weft/trainer.h"

namespace weft::cli {

/// The default of --lr with adapters.
inline constexpr double kAdapterRate = 2e-4;

/// Options of `weft train`.
struct TrainOptions {
  ParallelOptions parallel;
  ResumeOptions checkpoints;
  std::vector<std::string> data;
  DataFlags rows;
  std::string init;
  /// Adapters to start from; empty: new ones.
  std::string adapter;
  std::string device = "cpu";
  bool cuda_graph = false;
  bool deterministic = false;
  /// The same bits on any mesh (TrainerOptions::reproducible).
  bool reproducible = false;
  int ranks = 0;
  int64_t steps = 100;
  uint64_t seed = 0;
  std::string schedule = "cosine";
  /// Set when a flag names the schedule of a pipeline.
  bool pipeline_given = false;
  /// A regular expression; empty: only vectors do not decay.
  std::string no_decay;
  /// Steps; below 0: a tenth of all, at most 100.
  int64_t warmup = -1;
  /// 0: 3e-3, or 2e-5 with `init`; a tenth of that for Lion.
  double learning_rate = 0;
  double weight_decay = 0.1;
  /// Of the optimizer; none: its own, but 0.95 for the beta2 of the kinds of Adam and Muon.
  std::optional<double> beta1, beta2, eps;
  /// The rate at the end; none: see `floor_of`.
  std::optional<double> min_lr;
  /// Steps of the fall of wsd; none: a fifth of all.
  std::optional<int64_t> decay;
  int64_t restarts = 1;
  double power = 1;
  double clip = 1, clip_value = 0;
  /// The decay of averages of the weights; 0: there are none.
  double ema = 0;
  /// Files to validate on; empty: rows of `data` are held out.
  std::vector<std::string> validation;
  /// Steps between validations; 0: a tenth of all.
  int64_t validate_every = 0;
  /// Batches of each; 0: all rows.
  int64_t validation_batches = 4;
  bool keep_best = false;
  int patience = 0;
  int64_t check_replicas = 0;
  double spike = 0;
  std::string on_spike = "stop", on_non_finite = "stop";
  int most_skipped = 10;
  /// Checks one op call in so many; 0: none.
  int64_t shadow = 0;
  /// The rate of the biases that balance the load of experts.
  std::optional<double> balance_rate;
  double stated_balance_rate() const { return balance_rate.value_or(1e-3); }
  /// Peak rate of a device in 1e12 operations a second; 0: the rate of its data sheet.
  double peak_tflops = 0;
  int threads = 0;
  /// Seconds.
  double deadline = 600;
  std::vector<std::string> metrics;
  std::string trace;
  std::string prompt;
  int64_t sample = 0;
  /// The choices and predictions of a plan in words, if there is one.
  std::string memory_plan;
};

/// Checks what the flags say about the model, and applies the plan that --memory or a budget asks
/// for. The same flags give the same plan on all ranks.
void complete(TrainOptions& options, const TransformerConfig& config);

/// Checks that `weft train` writes no file that it or the next run reads, and that no two flags
/// name the same file. std::invalid_argument naming the flags.
void check_output_files(const TrainOptions& options);

/// std::invalid_argument unless it can be written: before hours of work, not after them. Leaves no
/// file where there was none.
void check_writable(const char* flag, const std::string& path);

/// Trains. Throws what went wrong.
void train(const TrainOptions& options);

}  // namespace weft::cli

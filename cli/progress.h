// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/device.h"
#include "weft/extend/file.h"
#include "weft/memory_budget.h"
#include "weft/storage.h"
#include "weft/trace.h"
#include "weft/transformer.h"

namespace weft::cli {

/// Figures of a model's experts for one step, over all ranks.
struct ExpertReport {
  /// Rows of each expert, by sparse layer.
  std::vector<std::vector<double>> load;
  int64_t dropped = 0;
  /// Empty unless it is part of the loss.
  std::optional<double> balance_loss;

  /// The largest load of an expert over the mean of its layer; 1 is balanced.
  double imbalance() const;
};

/// Ends a step of the experts, after the update: reports it, and moves the biases that balance the
/// load by `rate`. Empty for a dense model. Collective.
std::optional<ExpertReport> end_step_of_experts(TransformerModel& model, double rate);

/// Figures of one step.
struct StepReport {
  int64_t step = 0;
  double loss = 0;
  std::optional<double> validation_loss;
  double learning_rate = 0;
  double gradient_norm = 0;
  double tokens_per_second = 0;
  /// Model FLOPs utilization (MFU): the fraction of the devices' peak.
  std::optional<double> utilization;
  /// Since the first step began.
  double seconds = 0;
  /// Empty for a dense model.
  std::optional<ExpertReport> experts;
  /// Received from other ranks in this step, by rank 0.
  int64_t bytes_moved = 0;
  /// Memory of rank 0 so far.
  MemoryStatistics memory;
};

/// Writes reports: a JSON object a step to a file, and a line now and then to the terminal.
class Progress {
 public:
  /// A run that goes on after `done` steps adds to the file, after its line of that step; a run
  /// that begins at step 1 sets the file of an earlier one aside. std::invalid_argument when it
  /// cannot be written.
  Progress(const std::string& metrics_file, int64_t steps, int64_t done);
  void report(const StepReport& report);

 private:
  void write_metrics(const StepReport& report);
  void print_line(const StepReport& report);

  std::optional<OutputFile> file_;
  int64_t steps_;
  /// The first step of this run of the program.
  int64_t first_ = 0;
  bool is_above_peak_ = false;
  std::optional<std::chrono::steady_clock::time_point> printed_;
};

/// Prints how many events this rank's trace dropped, and how much of its communication the GPU
/// overlapped with computing in the spans "step", compared with the prediction. Records both in the
/// trace. Reports no overlap on a CPU, where ranks run their own communication.
void report_trace(TraceScope& trace, Device device, const std::optional<StepSeconds>& predicted);

}  // namespace weft::cli

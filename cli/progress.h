// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "cli/expert_report.h"
#include "weft/extend/file.h"
#include "weft/storage.h"

namespace weft::cli {

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
  /// A run that goes on adds to the file. std::invalid_argument when it cannot be written.
  Progress(const std::string& metrics_file, int64_t steps, bool goes_on);
  void report(const StepReport& report);

 private:
  void write_metrics(const StepReport& report);
  void print_line(const StepReport& report);

  std::optional<OutputFile> file_;
  int64_t steps_;
  /// The first step of this run of the program.
  int64_t first_ = 0;
  std::optional<std::chrono::steady_clock::time_point> printed_;
};

}  // namespace weft::cli

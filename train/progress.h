// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "weft/extend/file.h"
#include "weft/trainer.h"

namespace weft {

/// Ends a step of the experts, after the update: reports it, and moves the biases that balance the
/// load by `rate`. Empty for a dense model. Collective.
std::optional<ExpertReport> end_step_of_experts(Module& model, double rate);

/// Writes reports: a JSON object a step to a file, and a line now and then to `tell`.
class Progress {
 public:
  /// A run that goes on after `done` steps adds to the file, after its line of that step; a run
  /// that begins at step 1 sets the file of an earlier one aside. std::invalid_argument when it
  /// cannot be written.
  Progress(const TrainerOptions& options, int64_t done);
  void report(const StepReport& report);

 private:
  void write_metrics(const StepReport& report);
  void tell_line(const StepReport& report);

  const TrainerOptions& options_;
  std::optional<OutputFile> file_;
  /// The first step of this run of the program.
  int64_t first_ = 0;
  bool is_above_peak_ = false;
  std::optional<std::chrono::steady_clock::time_point> told_;
};

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "train/metrics.h"
#include "weft/trainer.h"

namespace weft {

/// Ends a step of the experts, after the update: reports it, and moves the biases that balance the
/// load by `rate`. Empty for a dense model. `pipeline`: whose stages the model holds, or null.
/// Collective.
std::optional<ExpertReport> end_step_of_experts(Module& model, double rate,
                                                const PipelinedTransformer* pipeline = nullptr);

/// Writes reports: to the destinations of metrics, and a line now and then to `tell`.
class Progress {
 public:
  /// Opens the destinations, as `metrics_writer` says.
  Progress(const TrainerOptions& options, int64_t done);
  void report(const StepReport& report);

 private:
  void tell_line(const StepReport& report);

  const TrainerOptions& options_;
  std::vector<std::unique_ptr<MetricsWriter>> writers_;
  /// The first step of this run of the program.
  int64_t first_ = 0;
  bool is_above_peak_ = false;
  std::optional<std::chrono::steady_clock::time_point> told_;
};

}  // namespace weft

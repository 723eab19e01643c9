// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "weft/module.h"
#include "weft/trainer.h"

namespace weft {

/// Decides on steps whose loss is not finite or far above those before, and on validations that
/// find no lower loss. What it remembers is kept in `numbers`, which checkpoints hold.
class Policies {
 public:
  Policies(const TrainerOptions& options, const Module& model,
           std::map<std::string, int64_t>& numbers);

  /// Returns why the step is skipped; empty where its gradients are to be used. std::runtime_error
  /// where the run stops. Collective; `loss` and `norm` are equal on all ranks.
  std::string reason_to_skip(int64_t step, double loss, double norm);
  /// Counts a step that is skipped for `reason`, which it returns. std::runtime_error for more than
  /// `most_skipped` in a row.
  std::string skipped(const std::string& reason);
  /// Notes a loss of a validation; returns whether it is the lowest.
  bool note_validation(int64_t step, double loss);
  /// Returns whether as many validations as `patience` in a row found no lower loss.
  bool is_patience_over() const;
  /// "the lowest validation loss is 1.25, of step 40".
  std::string best_in_words() const;
  /// Forgets the lowest loss where a checkpoint that was resumed after `done` steps had it of other
  /// rows; returns whether it did.
  bool begins_best_anew(int64_t done);
  /// std::runtime_error for a value that is not finite.
  void check_finite(int64_t step, const char* what, double value) const;

 private:
  void begin_best();
  int64_t validated() const;
  double number(const std::string& name) const;
  void set(const std::string& name, double value);
  std::optional<double> median() const;
  void note_loss(double loss);
  std::string largest_gradient() const;

  const TrainerOptions& options_;
  const Module& model_;
  std::map<std::string, int64_t>& numbers_;
};

}  // namespace weft

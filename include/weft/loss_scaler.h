// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "weft/export.h"
#include "weft/optimizer.h"
#include "weft/tensor.h"

namespace weft {

struct WEFT_API LossScalerOptions {
  double scale = 65536;
  double growth = 2;
  double backoff = 0.5;
  /// Steps in a row with finite gradients after which the scale grows.
  int64_t growth_interval = 2000;
  /// False: the scaler has no effect, and the scale is 1.
  bool enabled = true;
};

/// Scales a loss so that gradients of f16 neither vanish nor overflow, as torch.amp.GradScaler. A
/// step is made or skipped by the norm of all gradients, so that all ranks decide alike.
class WEFT_API LossScaler {
 public:
  /// std::invalid_argument unless scale, growth > 1, 0 < backoff < 1 and the interval fit.
  explicit LossScaler(LossScalerOptions options = {});

  /// The loss, times the scale: call backward on it.
  Tensor scale(const Tensor& loss) const;
  double scale() const { return scale_; }
  /// The norm of the gradients without the scale, of one that `gradient_norm` gave.
  Tensor unscaled(const Tensor& norm) const;
  /// Performs the optimizer's step with the gradients divided by the scale and times `clip` (that
  /// of `clip_scale(unscaled(norm), ...)`; empty: 1), unless `norm`, that of the scaled gradients,
  /// is infinite or NaN. Returns whether it did, and changes the scale.
  bool step(Optimizer& optimizer, const Tensor& norm, const Tensor& clip = {});
  /// Changes the scale after a step with these gradients, for a loop that steps by itself.
  void update(bool is_finite);

  const LossScalerOptions& options() const { return options_; }
  /// Steps in a row with finite gradients since the scale changed.
  int64_t growth_tracker() const { return tracker_; }
  /// Sets the scale and that number, those of a checkpoint.
  void set(double scale, int64_t growth_tracker);

 private:
  LossScalerOptions options_;
  double scale_;
  int64_t tracker_ = 0;
};

/// Skips and counts the steps of a training loop whose gradients are not finite, and stops the loop
/// after several in a row.
class WEFT_API NonFinitePolicy {
 public:
  /// `stop_after` 0: never. std::invalid_argument when it is negative.
  explicit NonFinitePolicy(int64_t stop_after = 10);

  /// True when a step with this norm of the gradients, equal on all ranks, is to be made.
  /// std::runtime_error when it is the last of `stop_after` steps in a row that are not finite.
  bool admits(double norm);
  int64_t stop_after() const { return stop_after_; }
  /// Steps that were skipped, in all and since the last finite one.
  int64_t skipped() const { return skipped_; }
  int64_t in_a_row() const { return in_a_row_; }
  /// Sets both numbers, those of a checkpoint.
  void set(int64_t skipped, int64_t in_a_row);

 private:
  int64_t stop_after_;
  int64_t skipped_ = 0, in_a_row_ = 0;
};

}  // namespace weft

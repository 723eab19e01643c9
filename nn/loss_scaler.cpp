// SPDX-License-Identifier: Apache-2.0
#include "weft/loss_scaler.h"

#include <cmath>

#include "weft/context.h"
#include "weft/error.h"
#include "weft/ops.h"

namespace weft {

static bool is_scale(double scale) { return scale > 0 && std::isfinite(scale); }

LossScaler::LossScaler(LossScalerOptions options)
    : options_(options), scale_(options.enabled ? options.scale : 1) {
  if (!is_scale(options.scale) || !(options.growth > 1) ||
      !(options.backoff > 0 && options.backoff < 1)) {
    fail("loss scaler: scale, growth and backoff are ", options.scale, ", ", options.growth,
         " and ", options.backoff, ", expected above 0, above 1, and between 0 and 1");
  }
  if (options.growth_interval < 1) {
    fail("loss scaler: growth interval is ", options.growth_interval, ", expected at least 1");
  }
}

Tensor LossScaler::scale(const Tensor& loss) const {
  return options_.enabled ? loss * scale_ : loss;
}

Tensor LossScaler::unscaled(const Tensor& norm) const {
  const NoGrad no_grad;
  return options_.enabled ? norm * (1 / scale_) : norm;
}

bool LossScaler::step(Optimizer& optimizer, const Tensor& norm, const Tensor& clip) {
  if (!options_.enabled) {
    optimizer.step(clip);
    return true;
  }
  const bool is_finite = std::isfinite(norm.item());
  if (is_finite) {
    const NoGrad no_grad;
    const Tensor one = clip ? clip : ones({}, {.device = norm.device()});
    optimizer.step(one * (1 / scale_));
  }
  update(is_finite);
  return is_finite;
}

void LossScaler::update(bool is_finite) {
  if (!options_.enabled) return;
  if (!is_finite) {
    scale_ *= options_.backoff;
    tracker_ = 0;
    return;
  }
  if (++tracker_ < options_.growth_interval) return;
  // As in PyTorch, a scale does not grow to infinity in f32.
  if (std::isfinite(static_cast<float>(scale_ * options_.growth))) scale_ *= options_.growth;
  tracker_ = 0;
}

void LossScaler::set(double scale, int64_t growth_tracker) {
  if (!is_scale(scale) || growth_tracker < 0) {
    fail("loss scaler: scale and growth tracker are ", scale, " and ", growth_tracker,
         ", expected above 0 and at least 0");
  }
  scale_ = scale;
  tracker_ = growth_tracker;
}

NonFinitePolicy::NonFinitePolicy(int64_t stop_after) : stop_after_(stop_after) {
  if (stop_after < 0)
    fail("non-finite policy: stop_after is ", stop_after, ", expected at least 0");
}

bool NonFinitePolicy::admits(double norm) {
  if (std::isfinite(norm)) {
    in_a_row_ = 0;
    return true;
  }
  ++skipped_;
  ++in_a_row_;
  if (stop_after_ > 0 && in_a_row_ >= stop_after_) {
    fail_call("training", "the norm of the gradients is ", norm, " in ", in_a_row_,
              " steps in a row, expected a number; use a lower learning rate or a longer warm-up");
  }
  return false;
}

void NonFinitePolicy::set(int64_t skipped, int64_t in_a_row) {
  if (in_a_row < 0 || skipped < in_a_row) {
    fail("non-finite policy: skipped steps are ", skipped, ", ", in_a_row,
         " of them in a row, expected at least 0 and no more than all");
  }
  skipped_ = skipped;
  in_a_row_ = in_a_row;
}

}  // namespace weft

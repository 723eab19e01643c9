// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/export.h"

namespace weft {

/// A learning rate by step, counted from 0. Any function is one.
using Schedule = std::function<double(int64_t step)>;

/// Options of all schedules; each uses those that it needs.
struct WEFT_API ScheduleOptions {
  double peak = 1e-3;
  /// Steps of linear warm-up to `peak`, and of the whole run.
  int64_t warmup = 0;
  int64_t total = 1;
  /// The rate at step `total` and later (of `cosine_schedule`, with whole falls).
  double floor = 0;
  /// A warm-up begins with the rate 0, as in transformers. Otherwise it begins with peak / warmup,
  /// as in `WarmupCosine`, so that no step is without effect.
  bool from_zero = true;
  /// Number of waves of `cosine_schedule`, and of falls of `restarts_schedule`.
  double cosine_cycles = 0.5;
  int64_t restarts = 1;
  /// Exponent of `polynomial_schedule`.
  double power = 1;
  /// Last steps of `wsd_schedule`, and the form of their fall: "linear", "cosine" or "1-sqrt".
  int64_t decay = 0;
  std::string decay_type = "cosine";
  /// Steps by which `inverse_sqrt_schedule` counts; 0: `warmup`, or 10,000 without one.
  int64_t timescale = 0;
  /// Numbers of `one_cycle_schedule`: the part of the steps in which the rate rises, the peak over
  /// the first rate, and the first rate over the last.
  double rising = 0.3;
  double first_divisor = 25, last_divisor = 1e4;
};

// The schedules of transformers.get_scheduler and torch.optim.lr_scheduler, with their rates.
// std::invalid_argument for options that do not fit and, when called, for a negative step.

/// The peak, after a warm-up.
WEFT_API Schedule constant_schedule(const ScheduleOptions& options);
/// Falls along a line.
WEFT_API Schedule linear_schedule(const ScheduleOptions& options);
/// Falls along half a cosine, or more waves.
WEFT_API Schedule cosine_schedule(const ScheduleOptions& options);
/// Falls along `restarts` half cosines, each from the peak.
WEFT_API Schedule restarts_schedule(const ScheduleOptions& options);
/// Falls as a power of what is left of the steps.
WEFT_API Schedule polynomial_schedule(const ScheduleOptions& options);
/// Falls as 1 / sqrt(step), without an end.
WEFT_API Schedule inverse_sqrt_schedule(const ScheduleOptions& options);
/// Warm-up, stable, decay: stays at the peak until the last `decay` steps. The warm-up begins at
/// the floor.
WEFT_API Schedule wsd_schedule(const ScheduleOptions& options);
/// Rises along half a cosine and falls along another (Smith and Topin, 2018), without a warm-up or
/// a floor: as OneCycleLR of PyTorch, which also changes the momentum.
WEFT_API Schedule one_cycle_schedule(const ScheduleOptions& options);

/// "constant", "constant_with_warmup", "linear", "cosine", "cosine_with_min_lr",
/// "cosine_with_restarts", "polynomial", "inverse_sqrt", "wsd", "warmup_stable_decay" and
/// "one_cycle".
WEFT_API std::vector<std::string> schedule_names();
/// std::invalid_argument for another name.
WEFT_API Schedule schedule_named(std::string_view name, const ScheduleOptions& options);

}  // namespace weft

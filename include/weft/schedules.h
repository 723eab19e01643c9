// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "weft/export.h"

namespace weft {

/// A learning rate by step, counted from 0: it rises linearly and reaches `peak` after `warmup`
/// steps, then falls along half a cosine to `floor` at step `total`, and stays there.
struct WEFT_API WarmupCosine {
  double peak = 1e-3;
  int64_t warmup = 0;
  int64_t total = 1;
  double floor = 0;

  /// std::invalid_argument for a negative step or a warm-up longer than `total`.
  double operator()(int64_t step) const;
  bool operator==(const WarmupCosine&) const = default;
};

}  // namespace weft

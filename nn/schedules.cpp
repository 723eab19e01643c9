// SPDX-License-Identifier: Apache-2.0
#include "weft/schedules.h"

#include <cmath>
#include <numbers>

#include "weft/error.h"

namespace weft {

double WarmupCosine::operator()(int64_t step) const {
  if (step < 0) fail("warm-up and cosine: step must be at least 0, got ", step);
  if (warmup < 0 || warmup > total) {
    fail("warm-up and cosine: warmup is ", warmup, ", expected 0 to ", total, " steps");
  }
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (step >= total) return floor;
  const double way = static_cast<double>(step - warmup) / static_cast<double>(total - warmup);
  return floor + (peak - floor) * 0.5 * (1 + std::cos(std::numbers::pi * way));
}

}  // namespace weft

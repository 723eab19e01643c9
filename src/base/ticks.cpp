// SPDX-License-Identifier: Apache-2.0
#include "src/base/ticks.h"

#include <thread>

namespace weft {

/// Long enough for a rate that is accurate to 0.01 %.
static constexpr int64_t kShortestMeasure = 2'000'000;

/// The thread may be preempted between two clock reads; keeps the closest pair of several.
TickScale::Moment TickScale::Moment::now() {
  Moment best;
  int64_t least = INT64_MAX;
  for (int i = 0; i < 8; ++i) {
    const int64_t before = steady_nanoseconds();
    const int64_t ticks = ticks_now();
    const auto wall = std::chrono::system_clock::now().time_since_epoch();
    const int64_t after = steady_nanoseconds();
    if (after - before >= least) continue;
    least = after - before;
    best = {ticks, before + least / 2, wall / std::chrono::nanoseconds(1)};
  }
  return best;
}

const TickScale::Moment TickScale::first_ = Moment::now();

TickScale TickScale::measured() {
  const int64_t missing = kShortestMeasure - (steady_nanoseconds() - first_.steady);
  if (missing > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(missing));
  TickScale scale;
  scale.now_ = Moment::now();
  scale.rate_ = static_cast<double>(scale.now_.steady - first_.steady) /
                static_cast<double>(scale.now_.ticks - first_.ticks);
  return scale;
}

}  // namespace weft

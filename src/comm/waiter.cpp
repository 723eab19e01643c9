// SPDX-License-Identifier: Apache-2.0
#include "src/comm/waiter.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace weft {

static constexpr std::chrono::nanoseconds kYieldsOnly = std::chrono::milliseconds(2);
static constexpr std::chrono::nanoseconds kLongestSleep = std::chrono::milliseconds(1);

void Waiter::look_at_clock() {
  const auto now = std::chrono::steady_clock::now();
  if (begin_ == std::chrono::steady_clock::time_point{}) begin_ = now;
  waited_ = now - begin_;
}

void Waiter::give_way() {
  look_at_clock();
  if (waited_ < kYieldsOnly) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(std::min(waited_ / 32, kLongestSleep));
  }
}

}  // namespace weft

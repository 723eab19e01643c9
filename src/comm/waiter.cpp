// SPDX-License-Identifier: Apache-2.0
#include "src/comm/waiter.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace weft {

static constexpr std::chrono::nanoseconds kYieldsOnly = std::chrono::milliseconds(2);
static constexpr std::chrono::nanoseconds kLongestSleep = std::chrono::milliseconds(1);
/// The longest time between two looks at the clock that counts as waiting. A longer gap means that
/// this thread did other work or was stopped, and the ranks that it waits for may have been, too.
static constexpr std::chrono::nanoseconds kLongestPause = std::chrono::seconds(1);
/// A yield takes about a microsecond when no other thread is ready to run.
static constexpr std::chrono::nanoseconds kYieldToSomebody = std::chrono::microseconds(5);
static constexpr std::chrono::nanoseconds kBetweenMoves = std::chrono::milliseconds(100);

void Waiter::look_at_clock() {
  const auto now = std::chrono::steady_clock::now();
  if (last_look_ != std::chrono::steady_clock::time_point{}) {
    waited_ += std::min<std::chrono::nanoseconds>(now - last_look_, kLongestPause);
  }
  last_look_ = now;
}

void Waiter::give_way() {
  look_at_clock();
  if (only_yields_ || waited_ < kYieldsOnly) {
    const std::chrono::nanoseconds before = waited_;
    sched_yield();
    look_at_clock();
    shares_core_ = waited_ - before > kYieldToSomebody;
  } else {
    std::this_thread::sleep_for(std::min(waited_ / 32, kLongestSleep));
    shares_core_ = false;
  }
}

void move_to_own_core(int index, int count) {
  static thread_local std::chrono::steady_clock::time_point moved{};
  cpu_set_t all, own;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  const int cores = CPU_COUNT(&all);
  const auto now = std::chrono::steady_clock::now();
  if (count > cores || now - moved < kBetweenMoves) return;
  int before = index * cores / count;
  int core = 0;
  while (!CPU_ISSET(core, &all) || before-- > 0) ++core;
  if (core == sched_getcpu()) return;
  moved = now;
  CPU_ZERO(&own);
  CPU_SET(core, &own);
  if (sched_setaffinity(0, sizeof own, &own) == 0) sched_setaffinity(0, sizeof all, &all);
}

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <stop_token>

namespace weft {

/// Paces one wait: polls `spins` times, then yields its core between polls, and sleeps in a long
/// wait, at most 1 ms and never longer than 1/32 of the time waited.
class Waiter {
 public:
  explicit Waiter(int spins) : spins_left_(spins) {}

  /// Called between two polls. Returns true when it yielded or slept: `waited()` is fresh, and slow
  /// checks may follow.
  bool pause() {
    if (spins_left_ > 0) [[likely]] {
      --spins_left_;
#if defined(__x86_64__)
      // 60 ns here, as long as a word takes between cores, and therefore not between all polls.
      if (spins_left_ % 8 == 0) __builtin_ia32_pause();
#endif
      return false;
    }
    give_way();
    return true;
  }
  /// Yields from now on between all polls: those that are system calls leave no time to others.
  void do_not_spin() { spins_left_ = 0; }
  /// While on, the waits do not spin and never sleep: large data moves only while both ends poll.
  void only_yield(bool on) {
    if (on) spins_left_ = 0;
    only_yields_ = on;
  }
  /// Counts the time between two polls of a thread that does other work in between.
  void look_at_clock();
  /// The time waited since the first look at the clock; a gap of over a second counts as one
  /// second.
  std::chrono::nanoseconds waited() const { return waited_; }
  /// Returns true when another thread ran on the core during the last yield.
  bool shares_core() const { return shares_core_; }

 private:
  void give_way();

  int spins_left_;
  std::chrono::steady_clock::time_point last_look_{};
  std::chrono::nanoseconds waited_{0};
  bool shares_core_ = false;
  bool only_yields_ = false;
};

/// Polls until `is_done()`; returns false when that takes longer than `limit`.
template <class IsDone>
bool wait_until(int spins, std::chrono::nanoseconds limit, IsDone&& is_done) {
  Waiter waiter(spins);
  while (!is_done()) {
    if (waiter.pause() && waiter.waited() > limit) return false;
  }
  return true;
}

/// Waits for so long; returns true at once when a stop is requested.
bool stops_within(const std::stop_token& stop, std::chrono::milliseconds limit);

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace weft {

/// How one wait passes its time: it polls `spins` times, then gives its core away between polls,
/// and sleeps when it has lasted long, never more than a thirty-second of what it lasted.
class Waiter {
 public:
  explicit Waiter(int spins) : spins_left_(spins) {}

  /// Between two polls. True when it has let others run, and a look at the clock is cheap.
  bool pause() {
    if (spins_left_ > 0) [[likely]] {
      --spins_left_;
#if defined(__x86_64__)
      // 60 ns here, as long as a word takes from core to core: not between all polls.
      if (spins_left_ % 8 == 0) __builtin_ia32_pause();
#endif
      return false;
    }
    give_way();
    return true;
  }
  /// Between two polls of somebody who has other things to do.
  void look_at_clock();
  /// Since the first look at the clock; more than a second between two looks counts as one.
  std::chrono::nanoseconds waited() const { return waited_; }
  /// True when somebody else had the core for a while when it was given away last.
  bool shares_core() const { return shares_core_; }

 private:
  void give_way();

  int spins_left_;
  std::chrono::steady_clock::time_point last_look_{};
  std::chrono::nanoseconds waited_{0};
  bool shares_core_ = false;
};

/// Moves the calling thread to the core that is its own when each of `count` threads has one, it
/// being number `index`; the system may move it again. Nothing where there are fewer cores, or
/// where it did so less than 100 ms ago: the core may be shared with another program, whose threads
/// have equal numbers.
void move_to_own_core(int index, int count);

}  // namespace weft

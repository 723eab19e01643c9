// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace weft {

/// True when the processor's counter has a constant rate; reading it costs half as much as the
/// system's clock.
inline const bool has_steady_counter = [] {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d >> 8 & 1) != 0;
#else
  return false;
#endif
}();

inline int64_t steady_nanoseconds() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

/// Returns the current time, to be converted to nanoseconds later.
inline int64_t ticks_now() {
#if defined(__x86_64__)
  if (has_steady_counter) [[likely]]
    return static_cast<int64_t>(__builtin_ia32_rdtsc());
#endif
  return steady_nanoseconds();
}

/// Converts ticks to nanoseconds of the steady clock, and that clock to wall time.
class TickScale {
 public:
  /// Measures the rate since the process started; waits a few milliseconds right after the start.
  static TickScale measured();
  /// Nanoseconds of the steady clock.
  int64_t steady(int64_t ticks) const {
    return now_.steady + static_cast<int64_t>(static_cast<double>(ticks - now_.ticks) * rate_);
  }
  /// A reference moment in nanoseconds since 1970, and the same moment by the steady clock.
  int64_t anchor_wall() const { return now_.wall; }
  int64_t anchor_steady() const { return now_.steady; }

 private:
  /// One moment by all clocks: counter ticks, and nanoseconds of the steady and the wall clock.
  struct Moment {
    int64_t ticks = 0, steady = 0, wall = 0;
    static Moment now();
  };
  static const Moment first_;

  Moment now_;
  double rate_ = 1;
};

}  // namespace weft

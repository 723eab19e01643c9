// SPDX-License-Identifier: Apache-2.0
// Preloaded into a program: its wall clock is set back or jumps; the monotonic clock is left alone.
// WEFT_CLOCK is <seconds>:<k>:<seconds>: what is added to the first k readings, and to the later
// ones.
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace {

struct Shift {
  long before = 0, after = 0;
  int k = 0;
  Shift() {
    if (const char* text = std::getenv("WEFT_CLOCK")) {
      std::sscanf(text, "%ld:%d:%ld", &before, &k, &after);
    }
  }
};

long seconds() {
  static const Shift shift;
  static std::atomic<int> readings = 0;
  return readings++ < shift.k ? shift.before : shift.after;
}

template <class F> F real(const char* name) {
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  static const auto next = real<int (*)(clockid_t, timespec*)>("clock_gettime");
  const int result = next(clock, now);
  const bool is_wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
  if (result == 0 && is_wall) now->tv_sec += seconds();
  return result;
}

time_t time(time_t* now) noexcept {
  timespec precise{};
  ::clock_gettime(CLOCK_REALTIME, &precise);
  if (now) *now = precise.tv_sec;
  return precise.tv_sec;
}

int gettimeofday(timeval* now, void*) noexcept {
  timespec precise{};
  ::clock_gettime(CLOCK_REALTIME, &precise);
  if (now) *now = {precise.tv_sec, precise.tv_nsec / 1000};
  return 0;
}

}  // extern "C"
#pragma GCC visibility pop

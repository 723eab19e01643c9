// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#ifdef WEFT_WITH_OPENMP
#include <omp.h>
#else
inline int omp_get_max_threads() { return 1; }
inline int omp_get_num_threads() { return 1; }
inline int omp_get_thread_num() { return 0; }
inline int omp_in_parallel() { return 0; }
inline void omp_set_num_threads(int) {}
#endif

namespace weft {

/// Elements of work below which a second thread does not pay off: 5 µs of an elementwise kernel.
inline constexpr int64_t kParallelGrain = 16384;

/// Minimum iterations per thread, when each iteration handles `elements` elements.
inline int64_t grain_of(int64_t elements) {
  return std::max<int64_t>(1, kParallelGrain / std::max<int64_t>(1, elements));
}

/// Calls f(begin, end) on disjoint ranges that cover [0, n): on the calling thread alone when n is
/// at most `grain`, otherwise on the threads this rank may use. f must not throw, and its result
/// for an index must not depend on the range.
template <class F> void parallel_for(int64_t n, int64_t grain, const F& f) {
  if (n > grain && !omp_in_parallel()) {
    const int64_t threads = std::min<int64_t>(omp_get_max_threads(), (n + grain - 1) / grain);
    if (threads > 1) {
#pragma omp parallel num_threads(static_cast <int>(threads))
      {
        const int64_t i = omp_get_thread_num(), count = omp_get_num_threads();
        f(n * i / count, n * (i + 1) / count);
      }
      return;
    }
  }
  if (n > 0) f(int64_t{0}, n);
}

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>

#ifdef WEFT_WITH_OPENMP
#include <omp.h>

#include "weft/export.h"
#endif

namespace weft {

/// The number of threads that a product called now may use: one inside a parallel region.
inline int usable_threads() {
#ifdef WEFT_WITH_OPENMP
  return omp_in_parallel() ? 1 : omp_get_max_threads();
#else
  return 1;
#endif
}

/// While an instance exists, products of the calling thread use `threads` threads.
class ThreadLimit : NotCopied {
 public:
#ifdef WEFT_WITH_OPENMP
  explicit ThreadLimit(int threads) : before_(omp_get_max_threads()) {
    if (threads != before_) omp_set_num_threads(threads);
  }
  ~ThreadLimit() {
    if (omp_get_max_threads() != before_) omp_set_num_threads(before_);
  }
#else
  explicit ThreadLimit(int) {}
#endif

 private:
#ifdef WEFT_WITH_OPENMP
  int before_;
#endif
};

/// Calls task(i, thread) for each i below `tasks`, with thread < `threads`; products inside a task
/// use one thread. Rethrows the first exception of a task.
template <class Task>
void run_tasks(int64_t tasks, [[maybe_unused]] int threads, const Task& task) {
#ifdef WEFT_WITH_OPENMP
  if (threads > 1 && tasks > 1) {
    std::exception_ptr error;
#pragma omp parallel num_threads(threads)
    {
      ThreadLimit one(1);
#pragma omp for schedule(dynamic)
      for (int64_t i = 0; i < tasks; ++i) {
        try {
          task(i, omp_get_thread_num());
        } catch (...) {
#pragma omp critical(weft_run_tasks)
          if (!error) error = std::current_exception();
        }
      }
    }
    if (error) std::rethrow_exception(error);
    return;
  }
#endif
  ThreadLimit one(1);
  for (int64_t i = 0; i < tasks; ++i) task(i, 0);
}

}  // namespace weft

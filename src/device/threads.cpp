// SPDX-License-Identifier: Apache-2.0
#include "weft/threads.h"

#include <unistd.h>

#include <cstdlib>

#include "src/base/parallel.h"
#include "src/device/context_scope.h"
#include "weft/error.h"

namespace weft {

void set_num_threads(int threads) {
  if (threads < 1 || threads > kMostThreads) {
    fail("set_num_threads: number of threads is ", threads, ", expected 1 to ", kMostThreads);
  }
  const int usable = usable_by_caller(threads);
  // First: a new context takes its number from OpenMP.
  Context::current().threads = usable;
  omp_set_num_threads(usable);
}

int get_num_threads() { return Context::current().threads; }

void let_threads_sleep([[maybe_unused]] char** argv) {
#ifdef WEFT_WITH_OPENMP
  if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT")) return;
  if (::setenv("OMP_WAIT_POLICY", "passive", 0) == 0) ::execv("/proc/self/exe", argv);
#endif
}

}  // namespace weft

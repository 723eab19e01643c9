// SPDX-License-Identifier: Apache-2.0
#include "weft/context.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <string_view>

#ifdef WEFT_WITH_OPENMP
#include <omp.h>
#endif

#include "src/device/context_scope.h"

namespace weft {

constinit thread_local Context* Context::current_ = nullptr;

#ifdef WEFT_WITH_OPENMP
static int threads_of_caller() { return omp_get_max_threads(); }

/// A child of fork lacks its parent's OpenMP threads, and a parallel region would wait for them.
WEFT_STATIC_TLS static thread_local bool is_without_threads = false;
static void use_one_thread() {
  is_without_threads = true;
  omp_set_num_threads(1);
  Context::current().threads = 1;
}
static const int use_one_thread_in_children = pthread_atfork(nullptr, nullptr, use_one_thread);

int usable_by_caller(int threads) { return is_without_threads ? 1 : threads; }
#else
static int threads_of_caller() { return 1; }
int usable_by_caller(int threads) { return threads; }
#endif

/// The default context of a thread without a ContextScope; destroyed before its other locals.
struct DefaultContext {
  Context context;
  ContextScope scope{context};
  DefaultContext() { context.threads = threads_of_caller(); }
};

Context& Context::of_thread() {
  static thread_local DefaultContext made;
  return made.context;
}

static std::atomic<bool>& is_deterministic() {
  static std::atomic<bool> on{[] {
    const char* asked = std::getenv("WEFT_DETERMINISTIC");
    return asked && std::string_view(asked) == "1";
  }()};
  return on;
}

void use_deterministic_algorithms(bool on) { is_deterministic() = on; }
bool uses_deterministic_algorithms() { return is_deterministic(); }

void manual_seed(uint64_t seed) { Context::current().random = {seed, 0}; }

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include "weft/context.h"

#include "src/context_scope.h"

namespace weft {

constinit thread_local Context* Context::current_ = nullptr;

/// The default context of a thread that nobody gave one; gone before the thread's other locals are.
struct DefaultContext {
  Context context;
  ContextScope scope{context};
};

Context& Context::of_thread() {
  static thread_local DefaultContext made;
  return made.context;
}

void manual_seed(uint64_t seed) { Context::current().random = {seed, 0}; }

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/context.h"
#include "weft/export.h"

namespace weft {

/// Makes `context` the calling thread's current context for a scope.
class ContextScope : NotCopied {
 public:
  explicit ContextScope(Context& context) : before_(Context::current_) {
    Context::current_ = &context;
  }
  ~ContextScope() { Context::current_ = before_; }

 private:
  Context* before_;
};

/// Returns how many of `threads` threads the calling thread may use: one in a child of fork.
int usable_by_caller(int threads);

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/context.h"

namespace weft {

/// Makes `context` that of the calling thread for a scope.
class ContextScope {
 public:
  explicit ContextScope(Context& context) : before_(Context::current_) {
    Context::current_ = &context;
  }
  ~ContextScope() { Context::current_ = before_; }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  Context* before_;
};

/// How many of `threads` threads the calling thread may use: one where it came out of a fork.
int usable_by_caller(int threads);

}  // namespace weft

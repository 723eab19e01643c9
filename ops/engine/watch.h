// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <utility>

#include "ops/engine/call_watch.h"
#include "ops/engine/engine.h"
#include "weft/anomaly.h"
#include "weft/context.h"

namespace weft {

/// Nothing is watched or recorded in the scope.
class Suspended : NotCopied {
 public:
  Suspended() : watch_(std::exchange(Engine::current().watch, nullptr)) {}
  ~Suspended() { Engine::current().watch = watch_; }

 private:
  CallWatch* watch_;
  const NoGrad no_grad_;
  const TrafficScope traffic_{Traffic::allow};
};

/// " in the gradient of mul of module "head", on rank 2".
std::string place_of_call(const ScopeNames& names, int rank);

/// The calling rank in the tensors' mesh; 0 without one.
int rank_of(std::span<const Tensor> tensors);

}  // namespace weft

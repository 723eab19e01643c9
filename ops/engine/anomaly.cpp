// SPDX-License-Identifier: Apache-2.0
#include "weft/anomaly.h"

#include <algorithm>
#include <cmath>

#include "ops/engine/backward_run.h"
#include "ops/engine/tensor_body.h"
#include "ops/engine/watch.h"
#include "weft/error.h"
#include "weft/extend/op.h"
#include "weft/ops.h"

namespace weft {

WatchScope::WatchScope(std::shared_ptr<CallWatch> watch) : watch_(std::move(watch)) {
  CallWatch*& current = Engine::current().watch;
  if (current) fail("detect_anomaly: the rank looks at its op calls already, expected one scope");
  current = watch_.get();
}

WatchScope::~WatchScope() { Engine::current().watch = nullptr; }

std::string place_of_call(const ScopeNames& names, int rank) {
  const BackwardRun* run = backward_under_way();
  std::string words = " in forward";
  if (run && run->running()) {
    words = concat(run->creates_graph() ? " in the recorded gradient of " : " in the gradient of ",
                   run->running()->name());
  }
  const void* scope = Context::current().scope;
  if (scope && names) words += concat(" of module ", in_quotes(names(scope)));
  return concat(words, ", on rank ", rank);
}

int rank_of(std::span<const Tensor> tensors) {
  for (const Tensor& tensor : tensors) {
    if (tensor && tensor.is_sharded()) return tensor.sharding().mesh().root().rank();
  }
  return 0;
}

namespace {

/// Whether this rank's elements are all finite; true for what cannot be infinite.
bool is_finite(const Tensor& tensor) {
  if (!tensor || !is_floating(tensor.dtype()) || size_of(tensor.dtype()) == 1) return true;
  if (tensor.device().kind == DeviceKind::meta || !tensor.storage()->is_bound()) return true;
  const Tensor local = tensor.local();
  return local.numel() == 0 || all(isfinite(local)).item() != 0;
}

class Anomaly final : public CallWatch {
 public:
  explicit Anomaly(ScopeNames names) : names_(std::move(names)) {}

  void computed(const OpBody& op, std::span<const Tensor> operands, const Attributes& attributes,
                std::span<const Tensor> results) override {
    // An infinity that the caller gave, as the fill of a mask.
    if (!std::ranges::all_of(attributes.values, [](double x) { return std::isfinite(x); })) return;
    const Suspended suspended;
    for (size_t i = 0; i < results.size(); ++i) {
      if (is_finite(results[i])) continue;
      for (const Tensor& operand : operands) {
        if (!is_finite(operand)) return;
      }
      const Tensor local = results[i].local();
      const bool has_nan = any(isnan(local)).item() != 0;
      throw_runtime_error(concat(op.spec.name, ": result ", i, ' ', results[i].shape(), " has ",
                                 has_nan ? "NaN" : "an infinity",
                                 place_of_call(names_, rank_of(results)),
                                 ", expected finite numbers, as this rank's parts of its operands "
                                 "have"));
    }
  }
  void differentiated(const OpNode&, std::span<const Tensor>, const Tensors&) override {}

 private:
  ScopeNames names_;
};

}  // namespace

DetectAnomaly::DetectAnomaly(ScopeNames names)
    : WatchScope(std::make_shared<Anomaly>(std::move(names))) {}

}  // namespace weft

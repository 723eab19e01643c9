// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "weft/context.h"
#include "weft/tensor.h"

namespace weft {

/// Where the gradient of a leaf goes. Contributions are added as they come; `complete` follows the
/// last one of a backward. One that runs within another says it too, unless the leaf is on the
/// outer one's tape as well; then what two such ones contribute is complete twice.
class WEFT_API GradientSink {
 public:
  virtual ~GradientSink() = default;
  struct Destination {
    /// Memory of the leaf's shape, laid out as gradients come (Partial where they are reduced
    /// later).
    Tensor tensor;
    /// Whether it holds earlier contributions.
    bool accumulate;
  };
  /// Asked before each contribution.
  virtual Destination destination() = 0;
  virtual void complete() = 0;
};

/// Gradients of all leaves that `roots` depend on, given the roots' gradients (no tensor: one).
WEFT_API void backward(const Tensors& roots, const Tensors& gradients);

/// Records `outputs` as computed from `inputs` by something that is no op: when their gradients are
/// complete `function` gets them (no tensor where nothing depends on one) and returns the inputs'.
/// The outputs get new handles, which require a gradient even if no input does.
using BackwardFunction = std::function<Tensors(const Tensors& gradients)>;
WEFT_API Tensors record(const char* name, const Tensors& inputs, const Tensors& outputs,
                        BackwardFunction function);

/// Runs `function` when the outermost backward under way on this rank has ended (at once when there
/// is none), and tells it whether it threw.
WEFT_API void after_backward(std::function<void(bool failed)> function);

/// What the calling rank's tape and engine did, since the rank began.
struct EngineStatistics {
  int64_t calls = 0;
  int64_t route_hits = 0;
  int64_t route_misses = 0;
  int64_t route_evictions = 0;
  /// Gradient contributions that were written to a sink's memory by the op that computed them.
  int64_t gradients_in_place = 0;
  /// Gradient contributions that were copied or added from scratch memory, and their bytes.
  int64_t gradient_copies = 0;
  int64_t gradient_copy_bytes = 0;
  /// Implicit traffic: redistributions that ops asked for, and bytes received.
  int64_t implicit_redistributions = 0;
  int64_t implicit_bytes = 0;
};
WEFT_API const EngineStatistics& engine_statistics();

/// Implicit traffic of the calling rank by op, as lines "op: count, bytes".
WEFT_API std::string implicit_traffic();

}  // namespace weft

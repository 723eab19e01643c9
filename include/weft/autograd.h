// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "weft/context.h"
#include "weft/tensor.h"

namespace weft {

/// Receives the gradient of a leaf in place of `grad()`. Contributions are added one by one;
/// `complete` follows the last one of a backward. A nested backward (recompute) calls it too,
/// unless the outer one expects more contributions to the leaf: two nested ones may complete it
/// twice.
class WEFT_API GradientSink {
 public:
  virtual ~GradientSink() = default;
  struct Destination {
    /// Memory of the leaf's shape in the layout of the contributions (Partial where they are
    /// reduced later).
    Tensor tensor;
    /// True when `tensor` holds earlier contributions, to which the next one is added.
    bool accumulate;
  };
  /// Called before each contribution.
  virtual Destination destination() = 0;
  virtual void complete() = 0;
};

/// Computes the gradients of all leaves that `roots` depend on; an empty root gradient means 1.
WEFT_API void backward(const Tensors& roots, const Tensors& gradients);

/// Records `outputs` as computed from `inputs` by something other than an op. When the outputs'
/// gradients are complete, `function` receives them (an empty tensor for an output that nothing
/// depends on) and returns the gradients of the inputs. Returns new handles of the outputs, which
/// require a gradient even if no input does.
using BackwardFunction = std::function<Tensors(const Tensors& gradients)>;
WEFT_API Tensors record(const char* name, const Tensors& inputs, const Tensors& outputs,
                        BackwardFunction function);

/// Runs `function` when the outermost backward of this rank has ended, or immediately when none is
/// running. `failed` is true when that backward threw.
WEFT_API void after_backward(std::function<void(bool failed)> function);

/// Counters of the calling rank's tape and op engine since the rank started.
struct EngineStatistics {
  int64_t calls = 0;
  int64_t route_hits = 0;
  int64_t route_misses = 0;
  int64_t route_evictions = 0;
  /// Gradient contributions that the op computing them wrote directly into a sink's memory.
  int64_t gradients_in_place = 0;
  /// Gradient contributions that were copied or added from scratch memory, and their bytes.
  int64_t gradient_copies = 0;
  int64_t gradient_copy_bytes = 0;
  /// Implicit traffic: redistributions that ops required, and the bytes received.
  int64_t implicit_redistributions = 0;
  int64_t implicit_bytes = 0;
};
WEFT_API const EngineStatistics& engine_statistics();

/// Returns the implicit traffic of the calling rank, a line per op: "op: 2 times, 64 bytes".
WEFT_API std::string implicit_traffic();

}  // namespace weft

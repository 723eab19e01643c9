// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "weft/stream.h"
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

/// Sends the gradient of the leaf to `sink` instead of `grad()`.
WEFT_API void set_gradient_sink(const Tensor& leaf, std::shared_ptr<GradientSink> sink);

/// Records `outputs` as computed from `inputs` by something other than an op. When the outputs'
/// gradients are complete, `function` receives them (an empty tensor for an output that nothing
/// depends on) and returns the gradients of the inputs. Returns new handles of the outputs, which
/// require a gradient even if no input does.
using BackwardFunction = std::function<Tensors(const Tensors& gradients)>;
WEFT_API Tensors record(const char* name, const Tensors& inputs, const Tensors& outputs,
                        BackwardFunction function);

/// Returns the stream on which the calling rank's outermost backward began, or the current one
/// outside of backward. What was recorded on `StreamRole::side` runs on that stream instead.
WEFT_API Stream backward_stream(Device device);

/// Runs `function` when the outermost backward of this rank has ended, or immediately when none is
/// running. `failed` is true when that backward threw.
WEFT_API void after_backward(std::function<void(bool failed)> function);

}  // namespace weft

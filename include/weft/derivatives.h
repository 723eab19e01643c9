// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/autograd.h"
#include "weft/context.h"
#include "weft/export.h"
#include "weft/extend/tape.h"
#include "weft/tensor.h"

namespace weft {

struct GradOptions {
  /// The gradients of the outputs; an empty one means 1, of an output of one element.
  Tensors grad_outputs = {};
  /// Records how the gradients are computed, so that they can be differentiated.
  bool create_graph = false;
  /// Keeps what backward saved, for another one; as `create_graph` unless given.
  std::optional<bool> retain_graph = {};
  /// Returns an empty tensor for an input that no output depends on, instead of throwing.
  bool allow_unused = false;
};

/// Returns the gradients of the outputs with respect to the inputs, which are leaves or results of
/// ops, each in the layout and dtype of its input (Partial becomes Replicate). Adds to the `grad()`
/// of no tensor. The value of a sharded parameter counts as what its modules use.
WEFT_API Tensors grad(const Tensors& outputs, const Tensors& inputs,
                      const GradOptions& options = {});

struct BackwardOptions {
  /// As in GradOptions. The `grad()` of a leaf then keeps the graph, which keeps the leaf: clear it
  /// when it is no longer needed.
  bool create_graph = false;
  std::optional<bool> retain_graph = {};
  /// Leaves that accumulate gradients; all, if empty.
  Tensors inputs = {};
};

/// As `backward(roots, gradients)`.
WEFT_API void backward(const Tensors& roots, const Tensors& gradients,
                       const BackwardOptions& options);

struct NodeHooks;

/// Removes a hook when asked; the hook stays otherwise. It does not keep the tensor.
class WEFT_API GradientHookHandle {
 public:
  GradientHookHandle() = default;
  GradientHookHandle(std::weak_ptr<NodeHooks*> hooks, uint64_t id)
      : hooks_(std::move(hooks)), id_(id) {}
  void remove();

 private:
  std::weak_ptr<NodeHooks*> hooks_;
  uint64_t id_ = 0;
};

/// Calls `hook` in each backward with the complete gradient of the tensor, before it is used
/// further. A tensor that it returns takes the gradient's place; an empty one changes nothing.
WEFT_API GradientHookHandle register_hook(const Tensor& tensor,
                                          std::function<Tensor(const Tensor& gradient)> hook);
/// Calls `hook` with the leaf after a backward has added to its `grad()`; for a sharded parameter
/// when that backward has reduced all gradients.
WEFT_API GradientHookHandle
register_post_accumulate_grad_hook(const Tensor& leaf, std::function<void(const Tensor&)> hook);

/// Calls `function->forward(inputs)`, unrecorded, and records its outputs: backward calls
/// `function->backward(gradients)`, which returns the gradients of the inputs. The function keeps
/// what both share. In a backward that creates a graph the gradients are differentiable if
/// `backward` computes them by ops of inputs that it kept.
template <class Function>
Tensors apply(const char* name, const std::shared_ptr<Function>& function, const Tensors& inputs) {
  Tensors outputs;
  {
    const NoGrad no_grad;
    outputs = function->forward(inputs);
  }
  bool is_recorded = false;
  for (const Tensor& input : inputs) is_recorded = is_recorded || (input && input.requires_grad());
  if (!is_recorded || !Context::current().grad_enabled) return outputs;
  return record(name, inputs, outputs,
                [function](const Tensors& gradients) { return function->backward(gradients); });
}

// Derivatives of functions of tensors. Inputs are floating; the functions get leaves with their
// values. With `create_graph` the results can be differentiated, by the inputs themselves too.

using TensorFunction = std::function<Tensors(const Tensors& inputs)>;

/// The outputs of a function, and products of its Jacobian, or of its Hessian.
struct WithProducts {
  Tensors outputs, products;
};

/// The gradients of the outputs times `v`, one tensor for each output, by the inputs.
WEFT_API WithProducts vjp(const TensorFunction& function, const Tensors& inputs, const Tensors& v,
                          bool create_graph = false);
/// The derivatives of the outputs along `v`, one tensor for each input. It takes two backwards.
WEFT_API WithProducts jvp(const TensorFunction& function, const Tensors& inputs, const Tensors& v,
                          bool create_graph = false);
/// The Hessian of the only output, of one element, times `v`, one tensor for each input.
WEFT_API WithProducts hvp(const TensorFunction& function, const Tensors& inputs, const Tensors& v,
                          bool create_graph = false);
/// Entry [o][i] is the Jacobian of output o by input i, with the dims of the output and then those
/// of the input. It takes a backward for each element of the outputs.
WEFT_API std::vector<Tensors> jacobian(const TensorFunction& function, const Tensors& inputs,
                                       bool create_graph = false);
/// Entry [i][j] has the second derivatives of the only output, of one element, by inputs i and j.
WEFT_API std::vector<Tensors> hessian(const TensorFunction& function, const Tensors& inputs,
                                      bool create_graph = false);

struct CheckOptions {
  /// The step of central differences, and the errors allowed: atol + rtol |quotient|.
  double eps = 1e-6, atol = 1e-5, rtol = 1e-3;
};
/// Compares gradients with central differences, for inputs of f64. Returns what differs first; ""
/// if nothing does.
WEFT_API std::string gradcheck(const TensorFunction& function, const Tensors& inputs,
                               const CheckOptions& options = {});
/// The same for second derivatives.
WEFT_API std::string gradgradcheck(const TensorFunction& function, const Tensors& inputs,
                                   const CheckOptions& options = {});

/// Makes backward keep the gradient of a result of an op: `grad()` returns it.
WEFT_API void retain_grad(const Tensor& tensor);
/// Returns the name of what computed the tensor, for backward; "" for a leaf or without a gradient.
WEFT_API std::string grad_fn(const Tensor& tensor);
/// Disconnects the tensor from the tape; std::invalid_argument for a view.
WEFT_API void detach_(const Tensor& tensor);

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include "weft/derivatives.h"

#include <algorithm>
#include <atomic>

#include "ops/engine/backward_run.h"
#include "ops/engine/definition.h"
#include "ops/engine/tensor_body.h"
#include "weft/error.h"
#include "weft/extend/op.h"
#include "weft/extend/tape.h"
#include "weft/ops/factories.h"

namespace weft {

Tensors complete_gradients(const char* what, const Tensors& roots, const Tensors& gradients) {
  if (gradients.size() > roots.size()) {
    fail(what, ": number of gradients is ", gradients.size(), ", expected at most ", roots.size(),
         ", one a root");
  }
  for (const Tensor& root : roots) check_tensor(what, root);
  Tensors complete = gradients;
  complete.resize(roots.size());
  for (size_t i = 0; i < roots.size(); ++i) {
    if (complete[i]) continue;
    if (roots[i].numel() != 1) {
      fail(what, ": number of elements of root ", i, " is ", roots[i].numel(),
           ", expected 1, or its gradient");
    }
    if (is_complex(roots[i].dtype())) {
      fail(what, ": dtype of root ", i, " is ", roots[i].dtype(),
           ", expected a real one, or its gradient");
    }
    complete[i] = ones_like(roots[i]);
  }
  return complete;
}

void backward(const Tensors& roots, const Tensors& gradients) {
  run_backward(roots, complete_gradients("backward", roots, gradients), {});
}

/// Throws unless a gradient of the tensor can be computed.
static void check_differentiable(const char* what, const Tensor& tensor, size_t i) {
  check_tensor(what, tensor);
  if (tensor.requires_grad()) return;
  fail(what, ": input ", i, ' ', tensor.shape(),
       " does not require a gradient, expected one that does");
}

Tensors grad(const Tensors& outputs, const Tensors& inputs, const GradOptions& options) {
  BackwardRequest request{.create_graph = options.create_graph,
                          .retain_graph = options.retain_graph.value_or(options.create_graph),
                          .targets = inputs,
                          .is_selective = true};
  for (size_t i = 0; i < inputs.size(); ++i) check_differentiable("grad", inputs[i], i);
  Tensors gradients =
      run_backward(outputs, complete_gradients("grad", outputs, options.grad_outputs), request);
  for (size_t i = 0; i < gradients.size() && !options.allow_unused; ++i) {
    if (gradients[i]) continue;
    fail("grad: input ", i, ' ', inputs[i].shape(),
         " is not used by the outputs, expected one that is; allow_unused returns none for it");
  }
  return gradients;
}

void backward(const Tensors& roots, const Tensors& gradients, const BackwardOptions& options) {
  BackwardRequest request{.create_graph = options.create_graph,
                          .retain_graph = options.retain_graph.value_or(options.create_graph),
                          .leaves = options.inputs,
                          .is_selective = !options.inputs.empty()};
  for (size_t i = 0; i < options.inputs.size(); ++i) {
    check_differentiable("backward", options.inputs[i], i);
    if (options.inputs[i].is_leaf()) continue;
    fail("backward: input ", i, ' ', options.inputs[i].shape(),
         " is the result of an op, expected a leaf; grad() returns gradients of results");
  }
  run_backward(roots, complete_gradients("backward", roots, gradients), request);
}

bool backward_is_special() {
  const BackwardRun* run = backward_under_way();
  return run && !run->request().is_default();
}

bool backward_creates_graph() {
  const BackwardRun* run = backward_under_way();
  return run && run->creates_graph();
}

void check_first_order(const char* name, const char* cure) {
  if (!backward_creates_graph()) return;
  fail(name, ": its gradient has no derivative, expected a backward without create_graph; ", cure);
}

Tensor as_input(size_t i, const Tensor& value) {
  return connected(value, backward_under_way()->running()->edges()[i], layout_of(value));
}

Tensor as_output(size_t i, const Tensor& value) {
  if (!backward_under_way()) return value;
  const Ref<Node> node(const_cast<Node*>(backward_under_way()->running()));
  return connected(value, {node, static_cast<int>(i)}, layout_of(value));
}

Tensors repeated_gradients(const Tensors& outputs, const Tensors& gradients,
                           const Tensors& inputs) {
  BackwardRun* outer = backward_under_way();
  const BackwardRequest& request = outer->request();
  return run_backward(outputs, gradients,
                      {.create_graph = request.create_graph,
                       .retain_graph = request.create_graph,
                       .targets = inputs,
                       .is_selective = request.is_selective,
                       .ends_at_targets = true,
                       .outer = outer});
}

Tensors gradients_by(const OpDefinition& definition, std::span<const Tensor> operands,
                     const Attributes& attributes, const Tensors& gradients,
                     const std::vector<int>& of) {
  const bool creates_graph = Context::current().grad_enabled;
  const ContextSetting<&Context::grad_enabled> recording(true);
  BackwardRequest request{.create_graph = creates_graph,
                          .retain_graph = creates_graph,
                          .is_selective = true,
                          .ends_at_targets = true};
  const auto pass_on = [](const Tensors& g) { return g; };
  Tensors all(operands.begin(), operands.end());
  // A separate node for each operand: one may be computed from another one, and the run ends there.
  for (Tensor& operand : all) {
    const bool is_connected = creates_graph && operand.requires_grad();
    if (!is_connected) operand = operand.detach();
    if (is_connected) operand = record("definition", {operand}, {operand}, pass_on)[0];
  }
  for (const int i : of) {
    Tensor& operand = all[static_cast<size_t>(i)];
    if (!operand.requires_grad()) {
      operand = record("definition", {operand}, {operand}, pass_on)[0];
    }
    request.targets.push_back(operand);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const bool is_target = std::ranges::find(of, static_cast<int>(i)) != of.end();
    if (!is_target && all[i].requires_grad()) request.targets.push_back(all[i]);
  }
  const Tensors results = definition(all, attributes);
  Tensors roots, given;
  for (size_t r = 0; r < gradients.size(); ++r) {
    if (!gradients[r] || !results[r].requires_grad()) continue;
    roots.push_back(results[r]);
    given.push_back(gradients[r]);
  }
  if (roots.empty()) return Tensors(of.size());
  Tensors found = run_backward(roots, given, request);
  found.resize(of.size());
  return found;
}

void give_by_definition(const Grad& grad, const OpDefinition& definition) {
  Tensors operands, gradients;
  std::vector<int> of;
  for (int i = 0; i < grad.operands(); ++i) {
    operands.push_back(grad.in(i));
    if (grad.wants(i)) of.push_back(i);
  }
  for (int r = 0; r < grad.results(); ++r) gradients.push_back(grad.grad(r));
  const Tensors all = gradients_by(definition, operands, grad.attributes(), gradients, of);
  for (size_t i = 0; i < of.size(); ++i) {
    if (all[i]) grad.give(of[i], all[i]);
  }
}

/// The leaf's node; std::invalid_argument for other tensors.
static LeafNode& leaf_node(const char* what, const Tensor& tensor) {
  check_tensor(what, tensor);
  Node* node = tensor.body()->node.get();
  if (!node || !node->is_leaf) {
    fail(what, ": the tensor ", tensor.shape(),
         node ? " is the result of an op" : " requires no gradient",
         ", expected a leaf that requires one");
  }
  return static_cast<LeafNode&>(*node);
}

/// Its complete gradient exists in the buffers of reductions only.
[[noreturn]] static void fail_hook_of_sharded(const Tensor& tensor) {
  fail("register_hook: the tensor ", tensor.shape(),
       " is a sharded parameter, whose gradient is reduced apart from the tape, expected another ",
       "one; register_post_accumulate_grad_hook runs when it is reduced");
}

void set_used_leaf(const Tensor& leaf, const Tensor& used) {
  if (!leaf.requires_grad()) return;
  LeafNode& node = leaf_node("set_used_leaf", leaf);
  if (used && node.hooks && !node.hooks->before.empty()) fail_hook_of_sharded(leaf);
  node.used = used ? used.body()->node : Ref<Node>();
}

void move_gradient_hooks(const Tensor& from, const Tensor& to) {
  Node* old = from.body()->node.get();
  if (!old || !old->hooks || !to.body()->node) return;
  old->hooks->leaf = to.detach();
  to.body()->node->hooks = std::move(old->hooks);
}

void GradientSink::receive(const Tensor& gradient) {
  fail("backward: create_graph is true for a leaf ", gradient.shape(),
       " whose gradient is reduced apart from the tape, expected false; call grad()");
}

static NodeHooks& hooks_of(Node& node) {
  if (!node.hooks) node.hooks = std::make_unique<NodeHooks>();
  return *node.hooks;
}

static uint64_t next_hook_id() {
  static std::atomic<uint64_t> next{1};
  return next++;
}

GradientHookHandle register_hook(const Tensor& tensor, GradientHook hook) {
  check_tensor("register_hook", tensor);
  const Ref<Node>& node = tensor.body()->node;
  if (!node) {
    fail("register_hook: the tensor ", tensor.shape(),
         " requires no gradient, expected one that does");
  }
  Node* receiver = receiver_of(node.get());
  if (receiver->is_leaf && static_cast<LeafNode*>(receiver)->sink) fail_hook_of_sharded(tensor);
  const uint64_t id = next_hook_id();
  NodeHooks& hooks = hooks_of(*node);
  hooks.before.push_back({id, tensor.body()->result, std::move(hook)});
  return GradientHookHandle(hooks.self, id);
}

GradientHookHandle register_post_accumulate_grad_hook(const Tensor& leaf,
                                                      std::function<void(const Tensor&)> hook) {
  LeafNode& node = leaf_node("register_post_accumulate_grad_hook", leaf);
  if (node.sink) {
    fail("register_post_accumulate_grad_hook: the tensor ", leaf.shape(),
         " is a parameter gathered for forward, expected its value(), which gets the gradient");
  }
  const uint64_t id = next_hook_id();
  NodeHooks& hooks = hooks_of(node);
  hooks.leaf = leaf.detach();
  hooks.after.push_back({id, std::move(hook)});
  return GradientHookHandle(hooks.self, id);
}

void run_post_accumulate_hooks(const Tensor& leaf) {
  const Node* node = leaf.body()->node.get();
  if (!node || !node->hooks || !leaf.grad()) return;
  const auto all = node->hooks->after;
  for (const NodeHooks::AfterEntry& entry : all) entry.run(leaf);
}

void GradientHookHandle::remove() {
  if (const std::shared_ptr<NodeHooks*> hooks = std::exchange(hooks_, {}).lock()) {
    const auto is_it = [this](const auto& entry) { return entry.id == id_; };
    std::erase_if((*hooks)->before, is_it);
    std::erase_if((*hooks)->after, is_it);
  }
}

void retain_grad(const Tensor& tensor) {
  check_tensor("retain_grad", tensor);
  Node* node = tensor.body()->node.get();
  if (!node) {
    fail("retain_grad: the tensor ", tensor.shape(),
         " requires no gradient, expected one that does");
  }
  if (node->is_leaf) return;
  auto& retained = hooks_of(*node).retained;
  const int result = tensor.body()->result;
  const auto is_it = [result](const auto& entry) { return entry.first == result; };
  if (std::ranges::none_of(retained, is_it)) retained.emplace_back(result, Tensor());
}

std::string grad_fn(const Tensor& tensor) {
  check_tensor("grad_fn", tensor);
  const Node* node = tensor.body()->node.get();
  return node && !node->is_leaf ? node->name() : std::string();
}

void detach_(const Tensor& tensor) {
  check_tensor("detach_", tensor);
  TensorBody& body = *tensor.body();
  if (body.node && body.node->is_view) {
    fail("detach_: the tensor ", tensor.shape(),
         " is a view, expected one with separate memory; detach() returns a detached view");
  }
  body.node = {};
  body.result = 0;
}

}  // namespace weft

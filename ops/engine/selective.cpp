// SPDX-License-Identifier: Apache-2.0
// What a backward does beyond accumulating gradients in all leaves: gradients of chosen tensors,
// hooks, and sinks.
#include <algorithm>

#include "ops/engine/backward_run.h"
#include "weft/error.h"

namespace weft {

bool BackwardRun::is_target(const Node& node) const {
  return std::ranges::any_of(targets_, [&](const Target& target) { return target.node == &node; });
}

bool BackwardRun::accumulates(const Node& leaf) const {
  if (!request_.is_selective) return true;
  if (leaves_.contains(&leaf)) return true;
  return request_.outer && request_.outer->accumulates(leaf);
}

bool BackwardRun::is_wanted(const Node& node) const {
  return is_target(node) || (node.is_leaf && request_.outer && request_.outer->is_wanted(node)) ||
         (node.is_leaf && accumulates(node));
}

bool BackwardRun::is_needed(const Node::Edge& edge) const {
  const Node& node = *receiver_of(edge.node.get());
  const auto found = slots_.find(&node);
  return is_wanted(node) || (found != slots_.end() && found->second.needed);
}

/// Marks the nodes on the ways from the roots to what is wanted.
void BackwardRun::mark_needed() {
  std::vector<Node*> todo;
  for (auto& [known, slot] : slots_) {
    Node* node = const_cast<Node*>(known);
    slot.needed = slot.needed || (node->is_leaf && is_wanted(*node)) || node->reaches_others();
    if (slot.needed || is_target(*node)) todo.push_back(node);
  }
  while (!todo.empty()) {
    const auto users = users_.find(todo.back());
    todo.pop_back();
    if (users == users_.end()) continue;
    for (Node* user : users->second) {
      if (std::exchange(slots_[user].needed, true)) continue;
      todo.push_back(user);
    }
  }
  users_.clear();
}

void BackwardRun::add_to_targets(const Node& node, int result, const Tensor& gradient) {
  for (Target& target : targets_) {
    if (target.node == &node && target.result == result) add_gradient(target.sum, gradient);
  }
  if (request_.outer && node.is_leaf) request_.outer->add_to_targets(node, result, gradient);
}

/// Adds the gradient to the targets that it is of; returns whether its node runs. Hooks of the node
/// change the gradient before it is a target's.
bool BackwardRun::capture(const Node& node, int result, const Tensor& gradient) {
  const auto found = slots_.find(&node);
  const bool runs =
      !request_.is_selective ||
      (node.is_leaf ? accumulates(node) : found != slots_.end() && found->second.needed);
  if (node.hooks && (runs || is_wanted(node))) return true;
  add_to_targets(node, result, gradient);
  return runs && !ends_at(node);
}

Tensors BackwardRun::captured() {
  const ContextSetting<&Context::grad_enabled> recording(request_.create_graph);
  Tensors gradients;
  for (size_t i = 0; i < targets_.size(); ++i) {
    Tensor& sum = targets_[i].sum;
    Tensor& gradient = gradients.emplace_back();
    if (!sum) continue;
    const Layout& layout = *layout_of(request_.targets[i]);
    const Sharding& own = layout.sharding;
    const Sharding target = own && own.has_partial() ? reduced_sharding(own) : own;
    // Sums across ranks are as exact as the tensor is.
    const bool widens = size_of(layout.dtype) > size_of(sum.dtype());
    if (widens) sum = sum.to(layout.dtype);
    gradient = move_recorded(sum, layout_of(target, layout.shape, sum.dtype()));
    if (gradient.dtype() != layout.dtype) gradient = gradient.to(layout.dtype);
  }
  return gradients;
}

void BackwardRun::run_hooks(Node& node, Tensors& gradients) {
  // A hook may add or remove hooks.
  const std::vector<NodeHooks::Entry> all = node.hooks->before;
  for (const NodeHooks::Entry& entry : all) {
    Tensor& gradient = gradients[static_cast<size_t>(entry.result)];
    if (!gradient) continue;
    Tensor changed = entry.run(gradient);
    if (!changed) continue;
    if (!(changed.shape() == gradient.shape()) || changed.is_sharded() != gradient.is_sharded()) {
      fail("register_hook: the gradient that a hook of ", node.name(), " returned is ",
           changed.shape(), ", expected ", gradient.shape(), ", laid out as it was");
    }
    gradient = std::move(changed);
  }
  for (auto& [result, kept] : node.hooks->retained) {
    const Tensor& gradient = gradients[static_cast<size_t>(result)];
    if (gradient) add_gradient(kept, gradient);
  }
  if (is_default_) return;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i]) add_to_targets(node, static_cast<int>(i), gradients[i]);
  }
}

void BackwardRun::pass_to_sink(LeafNode& leaf, const Tensor& gradient) {
  auto [tensor, accumulate] = leaf.sink->destination();
  Engine::current().reached_sink(gradient, false);
  side_.begin_write(leaf);
  add_into(tensor, accumulate, gradient);
  writes_.push_back(&leaf);
}

}  // namespace weft

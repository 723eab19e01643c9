// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unordered_map>
#include <vector>

#include "ops/autograd/node.h"
#include "ops/dispatch.h"
#include "weft/op.h"

namespace weft {

/// One backward on its way.
class BackwardRun {
 public:
  void run(const Tensors& roots, const Tensors& gradients);

  /// Adds a contribution to the gradient of what the edge leads to.
  void pass(const Node::Edge& edge, Tensor gradient);
  /// The memory of the leaf's gradient that the edge leads to, straight or through one view; no
  /// tensor when there is none. The caller writes it and calls `placed`.
  Place place_for(const Node::Edge& edge);
  void placed(const Place& place);
  /// Whether nodes that have not run yet may pass a gradient to this one.
  bool expects(const Node& node) const;

 private:
  struct Slot {
    /// Users of the node that have not run yet.
    int waiting = 0;
    /// The gradient went to a leaf behind this view already.
    bool delivered = false;
    std::vector<Tensor> gradients;
  };

  void count_users(const Ref<Node>& root);
  void run_node(const Ref<Node>& node);
  void user_done(const Node::Edge& edge);

  std::unordered_map<const Node*, Slot> slots_;
  /// Ready nodes, youngest on top.
  std::vector<std::pair<uint64_t, Ref<Node>>> ready_;
};

/// Whether a backward is under way on this rank.
bool is_in_backward();

/// `gradient` summed over the dims that broadcasting added or stretched.
Tensor summed_to(const Tensor& gradient, const Shape& shape);

}  // namespace weft

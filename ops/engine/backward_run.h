// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unordered_map>
#include <vector>

#include "ops/engine/dispatch.h"
#include "ops/engine/side_work.h"
#include "weft/extend/op.h"

namespace weft {

/// One run of backward.
class BackwardRun {
 public:
  explicit BackwardRun(SideWork& side) : side_(side) {}
  void run(const Tensors& roots, const Tensors& gradients);

  /// Adds a contribution to the gradient of the result that the edge leads to.
  void pass(const Node::Edge& edge, Tensor gradient);
  /// Returns the memory of the leaf gradient that the edge leads to, directly or through one view;
  /// without a tensor if there is none. The caller writes to it and calls `placed`.
  Place place_for(const Node::Edge& edge);
  void placed(const Place& place);
  /// Whether nodes that have not run yet may pass a gradient to `node`.
  bool expects(const Node& node) const;

 private:
  struct Slot {
    /// Number of users of the node that have not run yet.
    int waiting = 0;
    /// The gradient was already written to the leaf behind this view.
    bool delivered = false;
    std::vector<Tensor> gradients;
    /// A gradient came from another stream: what follows is added when the node runs, after these
    /// events.
    bool changes_stream = false;
    std::vector<Event> awaited;
    std::vector<std::pair<int, Tensor>> later;
  };

  void count_users(const Ref<Node>& root);
  void run_node(const Ref<Node>& node);
  void user_done(const Node::Edge& edge);
  /// Marks the end of the work whose gradients passed to another stream.
  void mark_passed();

  SideWork& side_;
  std::unordered_map<const Node*, Slot> slots_;
  /// Slots to which the node that runs now passed gradients from another stream.
  std::vector<Slot*> passed_;
  /// Leaves whose memory it writes.
  std::vector<LeafNode*> writes_;
  /// Heap of ready nodes, youngest on top.
  std::vector<std::pair<uint64_t, Ref<Node>>> ready_;
};

/// Whether a backward is under way on this rank.
bool is_in_backward();

/// True when no other reference to the tensor's elements exists.
bool is_only_reference(const Tensor& tensor);

/// Returns `gradient` summed over the dims that broadcasting added or stretched.
Tensor summed_to(const Tensor& gradient, const Shape& shape);

}  // namespace weft

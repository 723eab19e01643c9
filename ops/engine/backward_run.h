// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ops/engine/backward_request.h"
#include "ops/engine/engine.h"
#include "weft/export.h"
#include "weft/stream.h"

namespace weft {

/// Decides where the nodes of a backward run: those that were recorded on StreamRole::side run on
/// that stream, all others on the one on which the outermost backward began. It orders the two by
/// events where gradients pass from one to the other. Without the former nodes, as always on the
/// CPU, it costs a branch a node.
///
/// The streams are apart from the first gradient that passes to the side stream until they have
/// waited for each other. Both may read the same memory meanwhile, so that what a node frees is
/// kept if something else refers to it or did.
class SideWork : NotCopied {
 public:
  SideWork();
  ~SideWork();

  /// A node that a backward will run.
  void expect(const Node& node) {
    if (node.side >= 0) [[unlikely]]
      begin(node.side);
  }
  /// Returns whether a gradient that passes to `node` now changes the stream.
  bool changes_stream(const Node& node) const { return active_ && runs_aside(node) != is_aside_; }
  /// The streams are apart from now on.
  void part() { are_apart_ = true; }
  bool are_apart() const { return are_apart_; }
  /// Marks the work queued so far on the stream on which nodes run now.
  Event mark() const;

  /// Lets a node run on its stream, after `awaited`, while it exists.
  class Turn : NotCopied {
   public:
    Turn(SideWork& work, Node& node, const std::vector<Event>& awaited);
    ~Turn() { work_.is_aside_ = was_aside_; }

   private:
    SideWork& work_;
    const bool was_aside_;
    std::optional<StreamScope> scope_;
  };

  /// Orders writes to the memory of a leaf's gradient.
  void begin_write(const LeafNode& leaf) const {
    if (are_apart_) [[unlikely]]
      leaf.written.wait(current());
  }
  void end_write(LeafNode& leaf) const {
    if (are_apart_) [[unlikely]]
      leaf.written = mark();
  }

  /// Frees what `node` saved for its run, unless the graph is retained, and the gradients that it
  /// received, or keeps them.
  void free(const Ref<Node>& node, Tensors gradients, bool retains);
  void keep(Tensor tensor) { kept().tensors.push_back(std::move(tensor)); }

  /// The stream on which the backward began.
  Stream home(Device device) const;
  /// Lets the streams wait for each other if they are apart, and frees what was kept.
  void join();
  /// The outermost backward has ended.
  void finish();

 private:
  struct Kept {
    Tensors tensors;
    std::vector<Ref<Node>> nodes;
  };
  void begin(int device);
  bool runs_aside(const Node& node) const { return node.side >= 0 && node.side == device_; }
  Stream current() const { return current_stream(side_.device); }
  Kept& kept() { return kept_[is_aside_ ? 1 : 0]; }

  /// Context::stream where the backward began, which may name no device.
  const Stream home_;
  Stream side_;
  int device_ = -1;
  bool active_ = false, is_aside_ = false, are_apart_ = false;
  /// One for each stream whose later work uses the memory again.
  std::array<Kept, 2> kept_;
};

/// One run of backward.
class BackwardRun {
 public:
  BackwardRun(SideWork& side, const BackwardRequest& request);
  void run(const Tensors& roots, const Tensors& gradients);

  bool creates_graph() const { return request_.create_graph; }
  bool is_selective() const { return request_.is_selective; }
  const BackwardRequest& request() const { return request_; }
  /// The node that runs now.
  const Node* running() const { return running_; }
  /// Returns whether something needs the gradient that the edge leads to.
  bool wants(const Node::Edge& edge) const {
    return edge.node && (!request_.is_selective || is_needed(edge));
  }
  /// Returns whether the leaf adds the gradient to its own.
  bool accumulates(const Node& leaf) const;
  /// The gradients of the targets, brought to their layouts; empty where nothing depends on one.
  Tensors captured();

  /// Adds a contribution to the gradient of the result that the edge leads to.
  void pass(const Node::Edge& edge, Tensor gradient);
  /// Returns the memory of the leaf gradient that the edge leads to, directly or through one view;
  /// without a tensor if there is none. The caller writes to it and reports that to the Engine.
  Place place_for(const Node::Edge& edge);
  /// The run around this one, which runs a function again, that completes the leaf's gradient.
  BackwardRun* completing(const Node& leaf) const;
  /// Returns whether nodes that have not run yet may pass a gradient to `node`.
  bool expects(const Node& node) const;

 private:
  struct Slot {
    /// Number of users of the node that have not run yet.
    int waiting = 0;
    /// The subject of the user that ran last.
    uint64_t subject = 0;
    /// The gradient was already written to the leaf behind this view.
    bool delivered = false;
    /// A target depends on it, or it is a leaf that accumulates: it runs.
    bool needed = false;
    std::vector<Tensor> gradients;
    /// A gradient came from another stream: what follows is added when the node runs, after these
    /// events.
    bool changes_stream = false;
    std::vector<Event> awaited;
    std::vector<std::pair<int, Tensor>> later;
  };

  void count_users(Node* root);
  void mark_needed();
  /// Whether the node is a target, or a leaf that accumulates or is a target of the run around.
  bool is_wanted(const Node& node) const;
  bool is_needed(const Node::Edge& edge) const;
  bool is_target(const Node& node) const;
  /// Returns whether the run ends at the node.
  bool ends_at(const Node& node) const { return request_.ends_at_targets && is_target(node); }
  void add_to_targets(const Node& node, int result, const Tensor& gradient);
  bool capture(const Node& node, int result, const Tensor& gradient);
  void run_hooks(Node& node, Tensors& gradients);
  void pass_to_sink(LeafNode& leaf, const Tensor& gradient);
  void run_node(const Ref<Node>& node);
  void user_done(const Node::Edge& edge);
  /// Marks the end of the work whose gradients passed to another stream.
  void mark_passed();

  SideWork& side_;
  const BackwardRequest& request_;
  const bool is_default_;
  const Node* running_ = nullptr;
  /// The targets: their nodes, numbers of results, and the sums so far.
  struct Target {
    Node* node;
    int result;
    Tensor sum;
  };
  std::vector<Target> targets_;
  /// Leaves that accumulate if not all do.
  std::unordered_set<const Node*> leaves_;
  /// The users of each node, in a selective run.
  std::unordered_map<Node*, std::vector<Node*>> users_;
  std::unordered_map<const Node*, Slot> slots_;
  /// Slots to which the node that runs now passed gradients from another stream.
  std::vector<Slot*> passed_;
  /// Leaves whose memory it writes.
  std::vector<LeafNode*> writes_;
  /// Heap of ready nodes, youngest on top.
  std::vector<std::pair<uint64_t, Ref<Node>>> ready_;
};

/// Redistributes `gradient` to the layout of a result of `node`, with Partial made Replicate unless
/// only sinks of parameters need the sum, and casts it to the result's dtype.
Tensor brought_to(const Tensor& gradient, const Layout& layout, const Node& node);

/// Returns whether a backward is under way on this rank.
bool is_in_backward();

/// The innermost backward under way on this rank; null without one.
BackwardRun* backward_under_way();

/// True when no other reference to the tensor's elements exists.
bool is_only_reference(const Tensor& tensor);

}  // namespace weft

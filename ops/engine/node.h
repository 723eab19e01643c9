// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mesh/plan.h"
#include "src/device/cuda/runtime.h"
#include "weft/context.h"
#include "weft/extend/ref.h"
#include "weft/extend/subject.h"
#include "weft/extend/tape.h"
#include "weft/stream.h"

namespace weft {

struct TensorBody;
class BackwardRun;

/// Returns the GPU on whose StreamRole::side the stream is; -1 for other streams.
inline int8_t side_device(const Stream& stream) {
  return stream.handle && cuda::is_side(stream) ? stream.device.index : int8_t{-1};
}

/// A function that receives a gradient, and may return another one in its place.
using GradientHook = std::function<Tensor(const Tensor& gradient)>;

/// What the user asked to be told about the gradients of a node's results. Most nodes have none.
struct NodeHooks {
  struct Entry {
    uint64_t id;
    int result;
    GradientHook run;
  };
  struct AfterEntry {
    uint64_t id;
    std::function<void(const Tensor& leaf)> run;
  };
  /// In order of registration; they get the complete gradient of a result before the node runs.
  std::vector<Entry> before;
  /// The same after a leaf has stored its gradient.
  std::vector<AfterEntry> after;
  /// The leaf's elements for `after`, without its node: the leaf itself may be destroyed before
  /// backward, and would keep the node.
  Tensor leaf;
  /// For handles: whether these hooks exist.
  std::shared_ptr<NodeHooks*> self = std::make_shared<NodeHooks*>(this);
  /// Results whose gradient is kept (`retain_grad`), and those gradients.
  std::vector<std::pair<int, Tensor>> retained;
};

/// A node of the tape: turns the gradients of its results into those of its operands.
struct Node : public RefCounted {
  struct Edge {
    Ref<Node> node;
    int result = 0;
  };

  explicit Node(uint64_t number)
      : sequence(number),
        scope(Context::current().scope),
        subject(SubjectScope::current()),
        traffic(Context::current().traffic),
        side(side_device(Context::current().stream)) {}
  virtual ~Node() = default;
  /// Runs once per backward, when all results' gradients are complete (empty if there is none).
  virtual void run(BackwardRun& backward, std::span<const Tensor> gradients) = 0;
  /// Name under which its traffic is counted.
  virtual std::string name() const = 0;
  /// Frees the data that backward needed.
  virtual void release() = 0;
  /// The same, but adds the tensors that something else refers to, too, to `shared`; false, and
  /// nothing is freed, if the node does not know them.
  virtual bool release_own(Tensors& /*shared*/) { return false; }
  /// Edge i leads to the node that made operand i; null if the operand needs no gradient.
  virtual std::span<const Edge> edges() const = 0;
  /// Layouts of the results. Gradients are redistributed to them (Partial becomes Replicate).
  virtual std::span<const Ref<Layout>> results() const = 0;
  /// True if `run` passes gradients to leaves that no edge leads to (recomputation).
  virtual bool reaches_others() const { return false; }
  /// True if the node accepts gradients of its results in any layout.
  virtual bool takes_any_layout() const { return false; }

  /// Destroys a node without recursion, so that a long tape does not overflow the stack.
  static void destroy(Node* node);

  /// Increases over time: backward runs the youngest node first.
  uint64_t sequence;
  /// Context::scope at recording.
  const void* scope;
  /// SubjectScope::current() at recording. A leaf takes that of its last user in each backward:
  /// which ones used it before, or where it was made, is this rank's history.
  uint64_t subject;
  std::unique_ptr<NodeHooks> hooks;
  /// The traffic policy at recording; it applies to the gradients of the results.
  Traffic traffic;
  /// The GPU on whose StreamRole::side it was recorded; -1: on another stream.
  int8_t side;
  /// Its result shares the memory of operand 0.
  bool is_view = false;
  /// It is a LeafNode.
  bool is_leaf = false;
};

/// A tensor that requires a gradient. The gradient is stored here or goes to the sink. It runs as
/// soon as it is ready: waiting for its gradient must not mean waiting for older nodes.
struct LeafNode final : public Node {
  explicit LeafNode(Ref<Layout> marked) : Node(UINT64_MAX), layout(std::move(marked)) {
    is_leaf = true;
    side = -1;  // it is completed on the stream on which backward begins
  }
  void run(BackwardRun& backward, std::span<const Tensor> gradients) override;
  std::string name() const override { return "backward"; }
  void release() override {}
  std::span<const Edge> edges() const override { return {}; }
  std::span<const Ref<Layout>> results() const override { return {&layout, 1}; }

  /// These lock: backwards on other threads may add to the gradient at the same time.
  Tensor current_gradient() const;
  void set_gradient(Tensor value);

  Ref<Layout> layout;
  /// The leaf that forward uses in place of this one, and that gets its gradients: the gathered
  /// tensor of a sharded parameter.
  Ref<Node> used;
  /// Must be set before any backward.
  std::shared_ptr<GradientSink> sink;
  /// The end of the last write to the sink's memory, while streams of one backward are apart.
  Event written;

 private:
  void add(std::span<const Tensor> gradients);

  mutable std::mutex mutex_;
  Tensor gradient_;
};

uint64_t next_sequence();

/// Records `output` as `input` in another layout. `function` receives the gradient in any layout.
Tensor record_move(const char* name, const Tensor& input, const Tensor& output,
                   BackwardFunction function);

/// Returns the node that gets the gradients of `node`: itself, but for the leaf of a parameter that
/// forward uses in another layout.
inline Node* receiver_of(Node* node) {
  if (!node || !node->is_leaf) return node;
  Node* used = static_cast<LeafNode*>(node)->used.get();
  return used ? used : node;
}

/// Returns `tensor` as the result that the edge leads to, whose layout is `layout`: for backward of
/// backward, which needs to know how a saved tensor was computed.
Tensor connected(const Tensor& tensor, const Node::Edge& edge, const Ref<Layout>& layout);

/// Returns the same elements as a tensor of that sharding and shape, recorded for backward.
Tensor relabel_recorded(const char* name, const Tensor& tensor, const Sharding& sharding,
                        const Shape& shape);

/// Returns `tensor` in another layout by one plan, recorded for backward.
Tensor move_recorded(const Tensor& tensor, const Ref<Layout>& layout);

/// Returns the edge to the node that computed `tensor`.
Node::Edge edge_of(const Tensor& tensor);

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>

#include "mesh/layout.h"
#include "weft/autograd.h"
#include "weft/context.h"
#include "weft/ref.h"

namespace weft {

struct TensorBody;
class BackwardRun;

/// Something on the tape: given its results' gradients, it passes on those of its operands.
struct Node : public RefCounted {
  struct Edge {
    Ref<Node> node;
    int result = 0;
  };

  explicit Node(uint64_t number)
      : sequence(number), traffic(Context::current().traffic), scope(Context::current().scope) {}
  virtual ~Node() = default;
  /// Runs once per backward, when all results' gradients are complete (no tensor: none came).
  virtual void run(BackwardRun& backward, std::span<const Tensor> gradients) = 0;
  /// What is on the tape, as its traffic is counted.
  virtual std::string name() const = 0;
  /// Forgets what backward needed.
  virtual void release() = 0;
  /// Where operand i came from; no node when its gradient is not wanted.
  virtual std::span<const Edge> edges() const = 0;
  /// Layouts of the results: gradients are brought to them (Partial becomes Replicate).
  virtual std::span<const Ref<Layout>> results() const = 0;
  /// Takes its results' gradients in whatever layout they come.
  virtual bool takes_any_layout() const { return false; }

  /// Not recursive, however long the tape.
  static void destroy(Node* node);

  /// Grows with time: backward runs the youngest node first.
  uint64_t sequence;
  /// The policy when it was recorded holds for its results' gradients.
  Traffic traffic;
  /// What ran when it was recorded.
  const void* scope;
};

/// Leaves run as soon as they can: who waits for their gradients must not wait for older nodes.
inline constexpr uint64_t kLeafSequence = UINT64_MAX;

/// A tensor that the user marked. Its gradient stays here or goes to the sink.
struct LeafNode final : public Node {
  LeafNode(uint64_t number, Ref<Layout> marked) : Node(number), layout(std::move(marked)) {}
  void run(BackwardRun& backward, std::span<const Tensor> gradients) override;
  std::string name() const override { return "backward"; }
  void release() override {}
  std::span<const Edge> edges() const override { return {}; }
  std::span<const Ref<Layout>> results() const override { return {&layout, 1}; }

  /// Backwards of other threads add to it, too.
  Tensor current_gradient() const;
  void set_gradient(Tensor value);

  Ref<Layout> layout;
  /// Set before any backward.
  std::shared_ptr<GradientSink> sink;

 private:
  mutable std::mutex mutex_;
  Tensor gradient_;
};

uint64_t next_sequence();

/// Records `output` as `input` in another layout: its gradient comes to `function` in whatever
/// layout it has.
Tensor record_move(const char* name, const Tensor& input, const Tensor& output,
                   BackwardFunction function);

/// The edge to what computed `tensor`.
Node::Edge edge_of(const Tensor& tensor);

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/engine/call_body.h"
#include "ops/engine/dispatch.h"

namespace weft {

/// An op call on the tape.
struct OpNode final : public Node {
  OpNode(std::shared_ptr<const OpBody> called, Ref<Route> way, const Attributes& given)
      : Node(next_sequence()), op(std::move(called)), route(std::move(way)), attributes(given) {}
  void run(BackwardRun& backward, std::span<const Tensor> gradients) override;
  std::string name() const override { return op->spec.name; }
  void release() override;
  bool release_own(Tensors& shared) override;
  std::span<const Edge> edges() const override { return from.all(); }
  std::span<const Ref<Layout>> results() const override { return route->results; }

  /// A tensor that backward reads, and its storage's version when it was saved.
  struct Saved {
    Tensor tensor;
    uint64_t version = 0;
  };
  /// Returns a saved tensor; throws when it was changed in place since.
  Tensor saved(std::span<const Saved> list, int i, const char* kind) const;

  std::shared_ptr<const OpBody> op;
  Ref<Route> route;
  Attributes attributes;
  InlineList<Edge, kMaxOperands> from;
  /// By index; empty where nothing is saved.
  InlineList<Saved, kMaxOperands> in;
  InlineList<Saved, kMaxResults> out;
  bool released = false;

  static void* operator new(size_t bytes);
  static void operator delete(void* memory);
};

/// Records a call on the tape when one of its operands requires a gradient.
void record_op(const std::shared_ptr<const OpBody>& op, Ref<Route> route,
               const Attributes& attributes, std::span<const Tensor> operands,
               const UsedOperands& used, Results& results);

/// The data behind a Grad.
struct GradBody {
  OpNode& node;
  BackwardRun& backward;
  std::span<const Tensor> gradients;
};

}  // namespace weft

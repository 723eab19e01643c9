// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/deferred.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ops/engine/tensor_body.h"
#include "weft/autograd.h"
#include "weft/extend/deferred_gradients.h"
#include "weft/ops/factories.h"

namespace weft {

namespace {

/// Computes a product that an earlier backward left, in the order and the scopes of its node there.
struct DeferredNode final : public Node {
  DeferredNode(const Node& of, DeferredProduct left) : Node(of.sequence), product(std::move(left)) {
    traffic = of.traffic;
    scope = of.scope;
    subject = of.subject;
    side = of.side;
  }

  void run(BackwardRun& backward, std::span<const Tensor>) override {
    const auto edge = [this](size_t r) -> const Edge& { return product.edges[r]; };
    pass_results(backward, product.edges.size(), product.op, product.operands, product.attributes,
                 edge, [&](size_t r, const Tensor& gradient) {
                   backward.pass(edge(r), summed_to(gradient, product.shapes[r]));
                 });
  }
  std::string name() const override { return product.op.spec().name; }
  void release() override { product.operands.clear(); }
  std::span<const Edge> edges() const override { return product.edges; }
  std::span<const Ref<Layout>> results() const override { return {}; }
  bool takes_any_layout() const override { return true; }

  DeferredProduct product;
};

}  // namespace

static DeferredGradients::Scope*& current_deferral() {
  WEFT_STATIC_TLS static thread_local DeferredGradients::Scope* current = nullptr;
  return current;
}

DeferredGradients::Scope::Scope(DeferredGradients& deferred, Tensors needed)
    : to(deferred), inputs(std::move(needed)), outer_(std::exchange(current_deferral(), this)) {}

DeferredGradients::Scope::~Scope() { current_deferral() = outer_; }

static bool leads_to_one_of(const Node* receiver, const Tensors& tensors) {
  return std::ranges::any_of(tensors, [&](const Tensor& tensor) {
    return tensor && receiver_of(tensor.body()->node.get()) == receiver;
  });
}

bool is_deferring() { return current_deferral() != nullptr && !is_nested_backward(); }

bool defer(const BackwardRun& backward, const Node& node, DeferredProduct product) {
  const DeferredGradients::Scope* scope = current_deferral();
  bool any = false;
  for (const Node::Edge& edge : product.edges) {
    if (!backward.wants(edge)) continue;
    const Node* receiver = receiver_of(edge.node.get());
    if (!receiver->is_leaf || leads_to_one_of(receiver, scope->inputs)) return false;
    any = true;
  }
  if (!any) return false;
  Tensor root = zeros({1});
  root.body()->node = Ref<Node>(new DeferredNode(node, std::move(product)));
  scope->to.add(std::move(root));
  return true;
}

void DeferredGradients::run() {
  const Tensors roots = std::exchange(roots_, {});
  if (!roots.empty()) backward(roots, Tensors(roots.size()));
}

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "ops/engine/backward_run.h"
#include "ops/engine/tensor_body.h"
#include "weft/error.h"
#include "weft/extend/views.h"

namespace weft {

void Node::destroy(Node* node) {
  WEFT_STATIC_TLS static thread_local std::vector<Node*>* waiting = nullptr;
  if (waiting) return waiting->push_back(node);
  std::vector<Node*> nodes;
  waiting = &nodes;
  delete node;
  while (!nodes.empty()) {
    Node* next = nodes.back();
    nodes.pop_back();
    delete next;
  }
  waiting = nullptr;
}

namespace {

/// A function on the tape that is not an op.
struct FunctionNode final : public Node {
  using Node::Node;

  void run(BackwardRun& backward, std::span<const Tensor> gradients) override {
    if (!function)
      fail(what, ": backward ran before, expected one backward; retain_graph keeps it");
    Tensors passed = function(Tensors(gradients.begin(), gradients.end()));
    if (passed.size() != from.size()) {
      fail(what, ": number of gradients of its backward is ", passed.size(), ", expected ",
           from.size(), ", one an input");
    }
    for (size_t i = 0; i < passed.size(); ++i) backward.pass(from[i], passed[i]);
  }
  std::string name() const override { return what; }
  void release() override { function = nullptr; }
  std::span<const Edge> edges() const override { return from; }
  std::span<const Ref<Layout>> results() const override { return layouts; }
  bool takes_any_layout() const override { return any_layout; }
  bool reaches_others() const override { return reaches; }

  const char* what = "";
  bool any_layout = false, reaches = false;
  std::vector<Edge> from;
  std::vector<Ref<Layout>> layouts;
  BackwardFunction function;
};

}  // namespace

Tensors record(const char* name, const Tensors& inputs, const Tensors& outputs,
               BackwardFunction function) {
  Ref<FunctionNode> node(new FunctionNode(next_sequence()));
  node->what = name;
  node->function = std::move(function);
  for (const Tensor& input : inputs) node->from.push_back(input ? edge_of(input) : Node::Edge{});
  node->is_view = inputs.size() == 1 && inputs[0] && outputs.size() == 1 && outputs[0] &&
                  is_view_of(outputs[0], inputs[0]);
  Tensors recorded;
  for (size_t i = 0; i < outputs.size(); ++i) {
    Ref<Layout>& layout = node->layouts.emplace_back();
    Tensor& result = recorded.emplace_back();
    if (!outputs[i]) continue;
    layout = layout_of(outputs[i]);
    result = relabeled(outputs[i], layout);
    result.body()->node = Ref<Node>(node.get());
    result.body()->result = static_cast<int>(i);
  }
  return recorded;
}

Tensor record_move(const char* name, const Tensor& input, const Tensor& output,
                   BackwardFunction function) {
  Tensor moved = record(name, {input}, {output}, std::move(function))[0];
  static_cast<FunctionNode&>(*moved.body()->node).any_layout = true;
  return moved;
}

Tensors record_repeated(const char* name, const Tensors& inputs, const Tensors& outputs,
                        BackwardFunction function) {
  Tensors recorded = record(name, inputs, outputs, std::move(function));
  for (const Tensor& result : recorded) {
    if (result) static_cast<FunctionNode&>(*result.body()->node).reaches = true;
  }
  return recorded;
}

Tensor connected(const Tensor& tensor, const Node::Edge& edge, const Ref<Layout>& layout) {
  if (!edge.node || (tensor.body()->node == edge.node && tensor.body()->result == edge.result)) {
    return tensor;
  }
  Tensor same = relabeled(tensor, layout_of(tensor));
  same.body()->node = edge.node;
  same.body()->result = edge.result;
  if (layout_of(tensor) == layout) return same;
  return record_move("redistribute", same, tensor, [](const Tensors& g) { return g; });
}

Tensor relabel_recorded(const char* name, const Tensor& tensor, const Sharding& sharding,
                        const Shape& shape) {
  const Tensor made = relabeled(tensor, layout_of(sharding, shape, tensor.dtype()));
  if (!is_recorded(tensor)) return made;
  return record(name, {tensor}, {made}, [name, from = layout_of(tensor)](const Tensors& g) {
    return Tensors{relabel_recorded(name, g[0], from->sharding, from->shape)};
  })[0];
}

Tensor move_recorded(const Tensor& tensor, const Ref<Layout>& layout) {
  const Tensor moved = moved_to(tensor, layout);
  if (!is_recorded(tensor) || moved.body() == tensor.body()) return moved;
  return record_move("redistribute", tensor, moved, [](const Tensors& g) { return g; });
}

}  // namespace weft

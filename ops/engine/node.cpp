// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/node.h"

#include "ops/engine/backward_run.h"
#include "ops/engine/tensor_body.h"
#include "weft/error.h"
#include "weft/extend/tape.h"

namespace weft {

WEFT_STATIC_TLS static constinit thread_local uint64_t last_sequence = 0;

uint64_t next_sequence() { return ++last_sequence; }

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

Node::Edge edge_of(const Tensor& tensor) { return {tensor.body()->node, tensor.body()->result}; }

namespace {

/// A function on the tape that is not an op.
struct FunctionNode final : public Node {
  using Node::Node;

  void run(BackwardRun& backward, std::span<const Tensor> gradients) override {
    if (!function) fail(what, ": backward ran before, expected one backward");
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

  const char* what = "";
  bool any_layout = false;
  std::vector<Edge> from;
  std::vector<Ref<Layout>> layouts;
  BackwardFunction function;
};

}  // namespace

static Tensors recorded_function(const char* name, const Tensors& inputs, const Tensors& outputs,
                                 BackwardFunction function, bool any_layout) {
  Ref<FunctionNode> node(new FunctionNode(next_sequence()));
  node->any_layout = any_layout;
  node->what = name;
  node->function = std::move(function);
  for (const Tensor& input : inputs) node->from.push_back(input ? edge_of(input) : Node::Edge{});
  node->is_view = inputs.size() == 1 && inputs[0] && outputs.size() == 1 && outputs[0] &&
                  inputs[0].storage() == outputs[0].storage();
  Tensors recorded;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i]) {
      node->layouts.emplace_back();
      recorded.emplace_back();
      continue;
    }
    node->layouts.push_back(layout_of(outputs[i]));
    Tensor result = relabeled(outputs[i], layout_of(outputs[i]));
    result.body()->node = Ref<Node>(node.get());
    result.body()->result = static_cast<int>(i);
    recorded.push_back(std::move(result));
  }
  return recorded;
}

Tensors record(const char* name, const Tensors& inputs, const Tensors& outputs,
               BackwardFunction function) {
  return recorded_function(name, inputs, outputs, std::move(function), false);
}

Tensor record_move(const char* name, const Tensor& input, const Tensor& output,
                   BackwardFunction function) {
  return recorded_function(name, {input}, {output}, std::move(function), true)[0];
}

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/node.h"

#include <utility>

#include "ops/engine/backward_run.h"
#include "ops/engine/dispatch.h"
#include "ops/engine/engine.h"
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

/// Returns the same elements without a node: a saved result must not keep its own node alive.
static OpNode::Saved saved_result(const Tensor& tensor) {
  return {relabeled(tensor, layout_of(tensor)), tensor.storage()->version()};
}

void record_op(const std::shared_ptr<const OpBody>& op, Ref<Route> route,
               const Attributes& attributes, std::span<const Tensor> operands,
               const UsedOperands& used, Results& results) {
  bool wanted = false;
  for (const Tensor& operand : operands) {
    check_current(operand);
    wanted = wanted || operand.body()->node;
  }
  if (!wanted) return;
  auto* node = new OpNode(op, std::move(route), attributes);
  node->is_view = op->spec.view && results.tensors[0].storage() == operands[0].storage();
  Ref<Node> shared(node);
  const uint32_t saved_in = op->saved_in & ((1u << operands.size()) - 1);
  for (size_t i = 0; i < operands.size(); ++i) {
    node->from.add_made([&] { return edge_of(operands[i]); });
    if (!saved_in) continue;
    const bool fetched = node->route->operands[i].fetched;
    const Tensor& kept = fetched ? operands[i] : *used[static_cast<int>(i)];
    const bool saves = saved_in >> i & 1;
    node->in.add(saves ? OpNode::Saved{kept, kept.storage()->version()} : OpNode::Saved());
  }
  for (int i = 0; i < results.count; ++i) {
    Tensor& result = results.tensors[static_cast<size_t>(i)];
    const bool saves = op->saved_out >> i & 1;
    if (op->saved_out) node->out.add(saves ? saved_result(result) : OpNode::Saved());
    const bool last = i + 1 == results.count;
    result.body()->node = last ? std::move(shared) : shared;
    result.body()->result = i;
  }
}

void OpNode::run(BackwardRun& backward, std::span<const Tensor> gradients) {
  if (!op->spec.backward) {
    fail(op->spec.name, ": it has no backward, expected one where a gradient is wanted; ",
         "differentiable = false stops gradients");
  }
  if (released) {
    fail(op->spec.name, ": backward ran before and freed the saved tensors, expected one backward");
  }
  GradBody body{*this, backward, gradients};
  op->spec.backward(Grad(body));
}

void OpNode::release() {
  in.clear();
  out.clear();
  released = true;
}

bool OpNode::release_own(Tensors& shared) {
  for (const auto saved : {in.all(), out.all()}) {
    for (const Saved& one : saved) {
      if (one.tensor && !is_only_reference(one.tensor)) shared.push_back(one.tensor);
    }
  }
  release();
  return true;
}

Tensor OpNode::saved(std::span<const Saved> list, int i, const char* kind) const {
  const auto at = static_cast<size_t>(i);
  if (at >= list.size() || !list[at].tensor) {
    fail(op->spec.name, ": gradient reads ", kind, " ", i, ", expected one that the op saves");
  }
  const Saved& saved = list[at];
  if (saved.tensor.storage()->version() != saved.version) {
    fail(op->spec.name, ": ", kind, " ", i, " ", saved.tensor.shape(),
         " was changed in place after forward, expected its values for the gradient");
  }
  return saved.tensor;
}

int Grad::operands() const { return body_.node.from.size(); }
const Tensor& Grad::grad(int i) const { return body_.gradients[static_cast<size_t>(i)]; }
Tensor Grad::in(int i) const { return body_.node.saved(body_.node.in.all(), i, "operand"); }
Tensor Grad::out(int i) const { return body_.node.saved(body_.node.out.all(), i, "result"); }
const Shape& Grad::in_shape(int i) const { return body_.node.route->operand(i).given->shape; }
Sharding Grad::in_sharding(int i) const { return body_.node.route->operand(i).given->sharding; }
DType Grad::in_dtype(int i) const { return body_.node.route->operand(i).given->dtype; }
const Attributes& Grad::attributes() const { return body_.node.attributes; }
bool Grad::wants(int i) const { return static_cast<bool>(body_.node.from[i].node); }

void Grad::give(int i, const Tensor& gradient) const {
  if (!wants(i)) return;
  body_.backward.pass(body_.node.from[i], summed_to(gradient, in_shape(i)));
}

void Grad::give_all(std::span<const int> of, const Op& op, std::span<const Tensor> operands,
                    const Attributes& attributes) const {
  std::array<Place, kMaxResults> places;
  for (size_t r = 0; r < of.size(); ++r) {
    const Node::Edge& edge = body_.node.from[of[r]];
    if (edge.node) places[r] = body_.backward.place_for(edge);
  }
  Results results =
      dispatch_into(op.shared(), operands, attributes, std::span(places.data(), of.size()));
  for (size_t r = 0; r < of.size(); ++r) {
    if (places[r].tensor) {
      Recorder::current().reached_sink(places[r].tensor, places[r].direct);
    } else {
      give(of[r], results.tensors[r]);
    }
  }
}

}  // namespace weft

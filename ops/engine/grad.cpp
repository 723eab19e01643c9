// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/backward_run.h"
#include "ops/engine/op_node.h"

namespace weft {

int Grad::operands() const { return body_.node.from.size(); }
const Tensor& Grad::grad(int i) const { return body_.gradients[static_cast<size_t>(i)]; }
Tensor Grad::in(int i) const { return body_.node.saved(body_.node.in.all(), i, "operand"); }
Tensor Grad::out(int i) const { return body_.node.saved(body_.node.out.all(), i, "result"); }
const Shape& Grad::in_shape(int i) const {
  return body_.node.route->operands[static_cast<size_t>(i)].given->shape;
}
Sharding Grad::in_sharding(int i) const {
  return body_.node.route->operands[static_cast<size_t>(i)].given->sharding;
}
DType Grad::in_dtype(int i) const {
  return body_.node.route->operands[static_cast<size_t>(i)].given->dtype;
}
const Attributes& Grad::attributes() const { return body_.node.attributes; }
bool Grad::wants(int i) const { return static_cast<bool>(body_.node.from[i].node); }

void Grad::give(int i, const Tensor& gradient) const {
  if (!wants(i)) return;
  body_.backward.pass(body_.node.from[i], summed_to(gradient, in_shape(i)));
}

void Grad::give(int i, const Op& op, std::span<const Tensor> operands,
                const Attributes& attributes) const {
  if (wants(i)) give_all(std::span(&i, 1), op, operands, attributes);
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
      body_.backward.placed(places[r]);
    } else {
      give(of[r], results.tensors[r]);
    }
  }
}

}  // namespace weft

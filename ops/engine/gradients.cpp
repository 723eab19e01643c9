// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/backward_run.h"
#include "ops/engine/tensor_body.h"
#include "weft/error.h"
#include "weft/ops/elementwise.h"

namespace weft {

Node::Edge edge_of(const Tensor& tensor) { return {tensor.body()->node, tensor.body()->result}; }

/// True for a result that is computed from parameters with sinks and scalars alone, such as 1 + w.
static bool leads_to_sinks(const Node& node, int depth) {
  if (const auto* leaf = dynamic_cast<const LeafNode*>(&node)) return leaf->sink != nullptr;
  const auto* op = dynamic_cast<const OpNode*>(&node);
  if (!op || depth == 0) return false;
  for (size_t i = 0; i < op->edges().size(); ++i) {
    const Ref<Node>& from = op->edges()[i].node;
    if (from ? !leads_to_sinks(*from, depth - 1)
             : op->route->operand(static_cast<int>(i)).given->shape.product() != 1) {
      return false;
    }
  }
  return true;
}

/// The layout of a gradient of a result of `node`: that of the result, with Partial made Replicate.
/// Sums over ranks that only sinks need stay Partial until there, where their dtype is known.
static Sharding target_for(const Tensor& gradient, const Sharding& result, const Node& node) {
  Sharding target = result && result.has_partial() ? reduced_sharding(result) : result;
  if (!target || !gradient.sharding().has_partial() || !leads_to_sinks(node, 8)) return target;
  Pattern pattern = target.pattern();
  for (int axis = 0; axis < target.mesh().ndim(); ++axis) {
    const Placement& given = gradient.sharding()[axis];
    if (given == Partial() && target[axis].is_replicate()) pattern.set(axis, given);
  }
  return Sharding::of(target.mesh(), pattern);
}

Tensor brought_to(const Tensor& gradient, const Layout& layout, const Node& node) {
  const std::string what = node.name();
  if (static_cast<bool>(layout.sharding) != gradient.is_sharded()) {
    fail("backward: the gradient of a tensor ", layout.shape,
         gradient.is_sharded() ? " is laid out over a mesh" : " has no mesh", ", expected ",
         layout.sharding ? "the mesh of the tensor" : "none, as the tensor");
  }
  if (!(gradient.shape() == layout.shape)) {
    fail("backward: the gradient is ", gradient.shape(), ", expected ", layout.shape,
         ", the shape of its tensor");
  }
  Ref<Layout> target =
      layout_of(target_for(gradient, layout.sharding, node), layout.shape, gradient.dtype());
  Tensor brought = gradient;
  if (!(target == layout_of(gradient))) {
    Ref<Plan> plan = plan_between(layout_of(gradient), target);
    check_policy(what, !plan->steps.empty(), !plan->is_free());
    if (!plan->is_free()) Engine::current().required(what, plan->cost.bytes);
    brought = run_plan(gradient, plan, what);
    if (is_recorded(gradient)) {
      brought = record_move("redistribute", gradient, brought, [](const Tensors& g) { return g; });
    }
  }
  return brought.dtype() == layout.dtype ? brought : brought.to(layout.dtype);
}

}  // namespace weft

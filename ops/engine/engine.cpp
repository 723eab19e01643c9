// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/engine.h"

#include "ops/engine/tensor_body.h"
#include "weft/error.h"

namespace weft {

static Engine& made_engine(Context& context) {
  auto engine = std::make_shared<Engine>();
  context.engine = engine;
  return *engine;
}

Engine& Engine::current() {
  Context& context = Context::current();
  if (!context.engine) [[unlikely]]
    return made_engine(context);
  return *context.engine;
}

void check_policy(const std::string& what, bool moves, bool communicates) {
  Traffic traffic = Context::current().traffic;
  if (traffic == Traffic::allow) return;
  if (communicates) {
    fail(what,
         ": operands need a redistribution between ranks, expected layouts without one, as the ",
         "traffic policy demands; redistribute them explicitly");
  }
  if (moves && traffic == Traffic::forbid) {
    fail(what,
         ": operands need a redistribution within ranks, expected layouts without one, as the ",
         "traffic policy demands; redistribute them explicitly");
  }
}

Tensor run_plan(const Tensor& tensor, const Ref<Plan>& plan, const std::string& what) {
  Recorder::current().planned(what, *plan);
  const TensorBody& body = *tensor.body();
  if (std::optional<Box> part = local_part(*plan)) {
    int64_t offset = body.offset;
    for (int d = 0; d < part->shape.ndim(); ++d) offset += part->offset[d] * body.strides[d];
    return make_tensor(plan->to, body.storage, offset, body.strides);
  }
  Tensor result = new_tensor(plan->to, tensor.device());
  if (tensor.device().kind == DeviceKind::meta) {
    // Counts the memory that the plan would take in addition to source and result.
    const int64_t beside = plan->cost.peak_bytes - static_cast<int64_t>(result.storage()->bytes());
    if (beside > 0) Storage::allocate(static_cast<size_t>(beside), meta);
  } else {
    run(*plan, tensor.block(), result.block());
  }
  return result;
}

Tensor moved_to(const Tensor& tensor, const Ref<Layout>& layout) {
  if (layout_of(tensor) == layout) return tensor;
  return run_plan(tensor, plan_between(layout_of(tensor), layout));
}

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include "fsdp/fsdp_state.h"

#include <algorithm>
#include <optional>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/filter.hpp>
#include <range/v3/view/transform.hpp>
#include <utility>

#include "fsdp/fsdp_context.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/module_sharder.h"
#include "weft/extend/tape.h"
#include "weft/ops/elementwise.h"

namespace weft::fsdp {

template <class T> static std::shared_ptr<T> locked(const std::weak_ptr<T>& held) {
  if (auto found = held.lock()) return found;
  fail(
      "fully_shard: the outermost sharded module no longer exists, expected it to exist until the "
      "backward of its loss has ended");
}

/// Lets the tape write the gradient of an unsharded parameter into the group's buffer.
class FsdpState::Sink final : public GradientSink {
 public:
  Sink(std::weak_ptr<FsdpState> state, size_t i) : state_(std::move(state)), i_(i) {}
  Destination destination() override {
    const auto state = locked(state_);
    state->context()->pre_accumulate_grad(*state->group_, i_);
    return state->group_->gradients().destination(i_);
  }
  void complete() override {
    const auto state = locked(state_);
    state->context()->post_accumulate_grad(*state->group_, i_);
  }

 private:
  std::weak_ptr<FsdpState> state_;
  size_t i_;
};

FsdpState::FsdpState(Roles roles, const FullyShardOptions& options)
    : group_(ParamGroup::make(std::move(roles), options)) {}

std::shared_ptr<FsdpContext> FsdpState::context() const { return locked(context_); }

void FsdpState::adopt(NamedParameter parameter, size_t member) {
  ModuleSharder::set_lazy_init(*parameter.parameter, [held = weak_from_this()] {
    const auto state = held.lock();
    if (const auto context = state ? state->find_context() : nullptr) context->lazy_init();
  });
  group_->adopt(std::move(parameter), member);
}

std::vector<Module*> FsdpState::modules() const {
  std::vector<Module*> modules;
  for (const Member& member : members_) {
    if (!member.life.expired()) modules.push_back(member.module);
  }
  return modules;
}

void FsdpState::materialize(Device device) {
  if (const auto context = find_context()) {
    context->materialize(*group_, device);
  } else {
    group_->build();
    group_->materialize(device);
  }
}

template <class F> static Tensors transformed(const Tensors& tensors, const F& f) {
  return tensors | ranges::views::transform([&](const Tensor& x) { return x ? f(x) : x; }) |
         ranges::to<std::vector>();
}

/// Casts the floating tensors to `dtype`, if there is one.
static Tensors cast_all(const Tensors& tensors, const std::optional<DType>& dtype) {
  if (!dtype) return tensors;
  return transformed(tensors,
                     [&](const Tensor& x) { return is_floating(x.dtype()) ? x.to(*dtype) : x; });
}

Tensors FsdpState::hooked(Tensors tensors, Hook hook) {
  if (!Context::current().grad_enabled) return tensors;
  const auto requires_grad = [](const Tensor& x) { return x && x.requires_grad(); };
  const Tensors wanted = tensors | ranges::views::filter(requires_grad) | ranges::to<std::vector>();
  if (wanted.empty()) return tensors;
  const Tensors recorded = record("fully_shard", wanted, wanted,
                                  [held = weak_from_this(), hook](const Tensors& gradients) {
                                    return (locked(held).get()->*hook)(gradients);
                                  });
  auto next = recorded.begin();
  for (Tensor& tensor : tensors) {
    if (requires_grad(tensor)) tensor = *next++;
  }
  return tensors;
}

/// A forward of several modules begins with the first of them, or with one that has run already. A
/// recomputation in backward, or a call outside the model's forward, runs one alone.
Tensors FsdpState::pre_forward(size_t member, const Tensors& inputs) {
  const auto shared = context();
  if (!open_ || members_[member].has_run || shared->backward_has_begun()) {
    shared->pre_forward(*group_);
    open_ = members_.size() > 1 && !shared->backward_has_begun();
    for (Member& each : members_) each.has_run = false;
  }
  Tensors cast = cast_all(inputs, group_->options().precision.inputs);
  if (members_.size() > 1 && divide_factor() != 1) {
    // A gradient that goes on to another of the modules is divided again there.
    cast = hooked(std::move(cast), &FsdpState::multiply);
  }
  if (!group_->has_frozen()) return cast;
  return hooked(std::move(cast), &FsdpState::input_grads_complete);
}

Tensors FsdpState::post_forward(size_t member, const Tensors& outputs) {
  members_[member].has_run = true;
  const bool all = std::ranges::all_of(
      members_, [](const Member& each) { return each.has_run || each.life.expired(); });
  const auto shared = context();
  if (all || !open_ || shared->is_first(*group_)) {
    open_ = false;
    shared->post_forward(*group_);
  }
  return hooked(cast_all(outputs, group_->options().precision.outputs), &FsdpState::pre_backward);
}

void FsdpState::close_forward() {
  if (std::exchange(open_, false)) context()->post_forward(*group_);
}

/// The divisor of the gradients that enter the modules, which the outermost ones apply.
double FsdpState::divide_factor() const {
  return group_.get() == &context()->root() ? group_->options().gradient_divide_factor : 1;
}

Tensors FsdpState::multiply(const Tensors& gradients) {
  const double factor = divide_factor();
  return transformed(gradients, [&](const Tensor& gradient) { return gradient * factor; });
}

Tensors FsdpState::pre_backward(const Tensors& gradients) {
  context()->in_backward(StepEvent::Kind::pre_backward, *group_);
  const double factor = divide_factor();
  if (factor == 1) return gradients;
  return transformed(gradients, [&](const Tensor& gradient) { return gradient * (1 / factor); });
}

Tensors FsdpState::input_grads_complete(const Tensors& gradients) {
  context()->in_backward(StepEvent::Kind::input_grads_complete, *group_);
  return gradients;
}

void FsdpState::add_hooks(const std::vector<Module*>& modules) {
  group_->set_sink_maker(
      [held = weak_from_this()](size_t i) { return std::make_shared<Sink>(held, i); });
  for (size_t i = 0; i < modules.size(); ++i) {
    auto life = std::make_shared<bool>(true);
    members_.push_back({modules[i], life});
    ModuleSharder::add_materializer(*modules[i], [this](Device device) { materialize(device); });
    ModuleSharder::enclose(
        *modules[i],
        {.before = [this, i, life](const Tensors& inputs) { return pre_forward(i, inputs); },
         .after = [this, i](const Tensors&,
                            const Tensors& outputs) { return post_forward(i, outputs); }});
  }
}

}  // namespace weft::fsdp

// SPDX-License-Identifier: Apache-2.0
#include "weft/fsdp_module.h"

#include <algorithm>
#include <range/v3/view/enumerate.hpp>

#include "fsdp/fsdp_context.h"
#include "weft/error.h"
#include "weft/extend/module_sharder.h"

namespace weft::fsdp {

void FsdpContext::user_event(StepEvent::Kind kind, ParamGroup& group) {
  if (kind == StepEvent::Kind::user_unshard) {
    if (!running_) take_over_changes();
    group.copy_set_values();
    note_changes(group);
  }
  if (group.is_built()) handle(kind, group);
}

void FsdpContext::set_manual_finalization(bool enabled) {
  if (enabled != finalizes_manually_ && backward_begun_) {
    fail(
        "set_manual_backward_finalization: a backward has begun, expected none; call "
        "finalize_backward or reset_iter_state first");
  }
  finalizes_manually_ = enabled;
}

/// The outermost backward has ended, and with it the step unless more backwards belong to it.
void FsdpContext::gather_for_backward(ParamGroup& group) {
  if (!group.controls.unshards_in_backward) return;
  if (backward_fills_sinks()) {
    begin_backward();
  } else {
    if (lent_.empty()) {
      weft::after_backward([held = weak_from_this()](bool) {
        if (const auto context = held.lock()) context->end_lending();
      });
    }
    if (std::ranges::find(lent_, &group) == lent_.end()) lent_.push_back(&group);
  }
  note_changes(group);
  scheduler_.handle({StepEvent::Kind::user_unshard, &group}, {});
  scheduler_.handle({StepEvent::Kind::user_wait, &group}, {});
}

/// Reshards what `grad` unsharded: as after forward, or as after backward if no step is under way.
void FsdpContext::end_lending() {
  const auto kind =
      running_ ? StepEvent::Kind::post_forward : StepEvent::Kind::input_grads_complete;
  for (ParamGroup* group : std::exchange(lent_, {})) scheduler_.handle({kind, group}, {});
}

void FsdpContext::end_backward() {
  if (!finalizes_manually_) {
    if (is_last_backward_) return finalize_backward();
    scheduler_.set_sync(syncs_);
    handle(StepEvent::Kind::backward_complete, root());
  }
  for (const auto& group : groups_) group->gradients().hide();
}

uint64_t FsdpContext::finalize_manually(bool waits) {
  if (!backward_begun_) return 0;
  if (in_backward_) {
    fail("finalize_backward: a backward is under way, expected a call after it");
  }
  scheduler_.set_sync(syncs_);
  if (waits) {
    finalize_backward();
    return 0;
  }
  handle(StepEvent::Kind::backward_complete, root());
  for (const auto& group : groups_) group->gradients().hide();
  return step_;
}

void FsdpContext::wait_for_finalization(uint64_t step) {
  if (step <= reset_at_) {
    throw_runtime_error(
        "wait: the step of these reductions was reset, expected no reset_iter_state before");
  }
  if (step == step_ && backward_begun_) finalize_backward();
}

void FsdpContext::reset_iter_state() {
  abandon();
  reset_at_ = step_;
  traffic_ = {};
  for (const auto& group : groups_) {
    if (!group->is_built()) continue;
    scheduler_.drop_grads(*group);
    group->gradients().clear();
  }
}

void FsdpContext::share_buffers(FsdpContext& first) {
  if (running_ || first.running_) {
    fail("share_comm_ctx: a step of the model is under way, expected none");
  }
  for (const auto& group : groups_) {
    if (!group->is_built()) continue;
    scheduler_.handle({StepEvent::Kind::user_reshard, group.get()}, {});
    if (const FsdpParam* kept = group->gradients().find_kept()) {
      fail("share_comm_ctx: parameter ", kept->name,
           " has a gradient, expected none; call zero_grad first");
    }
    scheduler_.drop_grads(*group);
  }
  pool_ = first.pool_;
}

/// Takes over what the user has changed since the last step: parameters and modules that were
/// added, replaced or removed, and parameters that were frozen or unfrozen.
void FsdpContext::take_over_changes() {
  if (const uint64_t found = structure_of(states_.back()->modules()); found != structure_) {
    readopt();
    structure_ = found;
  }
  lazy_init();
  for (const auto& group : groups_) {
    if (!group->trainable_changed()) continue;
    scheduler_.drop_grads(*group);
    group->update_trainable();
    recordings_ = {};
  }
  pool_->expect(this, buffer_sizes(groups_));
}

/// Distributes the parameters of the model among the groups again. The next steps record their
/// schedules.
void FsdpContext::readopt() {
  bool has_memory = false;
  for (const auto& group : groups_) {
    if (!group->is_built()) continue;
    has_memory = has_memory || !group->awaits_memory();
    scheduler_.handle({StepEvent::Kind::user_reshard, group.get()}, {});
  }
  const FsdpStates before = states_, now = states_from(states_.back()->modules());
  const std::vector<ParamGroup*> changed = adopt_again(before, now);
  for (const auto& group : groups_) {
    const bool is_changed = std::ranges::find(changed, group.get()) != changed.end();
    if (is_changed) scheduler_.drop_grads(*group);
  }
  use_states(now);
  recordings_ = {};
  // Modules that left the model are separate models.
  for (const auto& state : before) {
    if (std::ranges::find(now, state) != now.end()) continue;
    const std::vector<Module*> modules = state->modules();
    const auto own =
        modules.empty() ? nullptr : ModuleSharder::attachment<FsdpContext>(*modules[0]);
    if (own) own->use_states(states_from(modules));
  }
  for (ParamGroup* group : changed) group->drop_params();
  for (ParamGroup* group : changed) {
    group->build();
    if (has_memory && group->awaits_memory()) group->materialize_all(pool_->device());
  }
}

}  // namespace weft::fsdp

namespace weft {

using Controls = fsdp::ParamGroup::Controls;
using Kind = fsdp::StepEvent::Kind;
using fsdp::FsdpContext;
using fsdp::FsdpState;

static void user_event(Kind kind, const FsdpState& state) {
  state.context()->user_event(kind, *state.group());
}

void UnshardHandle::wait() {
  for (const auto& state : std::exchange(states_, {})) user_event(Kind::user_wait, *state);
}

void GradientReductionHandle::wait() {
  if (const auto context = context_.lock()) context->wait_for_finalization(step_);
  context_ = {};
}

bool FsdpModule::is_sharded(const Module& module) {
  return ModuleSharder::attachment<FsdpState>(module) != nullptr;
}

std::string FsdpModule::strategy_of(const Module& module) {
  const auto state = ModuleSharder::attachment<FsdpState>(module);
  if (!state) return {};
  const DeviceMesh& mesh = state->group()->mesh();
  const std::string& name = state->group()->options().strategy.name;
  std::string axes;
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    axes += concat(axis > 0 ? ", " : "", mesh.axis_name(axis), '=', mesh.axis_size(axis));
  }
  return concat(name.empty() ? "sharded" : name, " over ", axes);
}

bool FsdpModule::computes_in(Module& module, DType dtype) {
  return std::ranges::any_of(fsdp::states_from({&module}), [&](const auto& state) {
    const MixedPrecision& precision = state->group()->options().precision;
    const auto& compute = precision.compute ? precision.compute : precision.storage;
    return compute == dtype;
  });
}

FsdpModule::FsdpModule(Module& module) : module_(module) {
  if (is_sharded(module)) return;
  fail("fsdp_module: module is not sharded, expected one that was given to fully_shard");
}

FsdpModule::States FsdpModule::states(bool recurse) const {
  States all;
  for (const auto& [name, module] : module_.named_modules()) {
    if (!recurse && module != &module_) continue;
    for (auto& state : ModuleSharder::attachments<FsdpState>(*module)) {
      all.push_back(std::move(state));
    }
  }
  return all;
}

std::shared_ptr<FsdpContext> FsdpModule::context() const { return states(false)[0]->context(); }

FsdpState& FsdpModule::only_state(const char* what) const {
  const States own = states(false);
  if (own.size() > 1) {
    fail(what, ": number of meshes of the module's parameters is ", own.size(), ", expected 1");
  }
  return *own[0];
}

UnshardHandle FsdpModule::unshard(bool async_op) {
  const States own = states(false);
  for (const auto& state : own) user_event(Kind::user_unshard, *state);
  UnshardHandle handle(own);
  if (!async_op) handle.wait();
  return handle;
}

void FsdpModule::reshard() {
  for (const auto& state : states(false)) user_event(Kind::user_reshard, *state);
}

template <class T>
static void set_controls(const std::vector<std::shared_ptr<FsdpState>>& states, T Controls::*what,
                         bool on) {
  for (const auto& state : states) state->group()->controls.*what = on;
}

void FsdpModule::set_requires_gradient_sync(bool requires_gradient_sync, bool recurse) {
  set_controls(states(recurse), &Controls::reduces, requires_gradient_sync);
  set_controls(states(recurse), &Controls::all_reduces, requires_gradient_sync);
}

void FsdpModule::set_requires_all_reduce(bool requires_all_reduce, bool recurse) {
  set_controls(states(recurse), &Controls::all_reduces, requires_all_reduce);
}

void FsdpModule::set_reshard_after_forward(bool reshard_after_forward, bool recurse) {
  set_controls(states(recurse), &Controls::reshards_after_forward, reshard_after_forward);
}

void FsdpModule::set_reshard_after_backward(bool reshard_after_backward, bool recurse) {
  set_controls(states(recurse), &Controls::reshards_after_backward, reshard_after_backward);
}

void FsdpModule::set_prefetch(const char* what, const std::vector<Module*>& modules,
                              bool backward) {
  std::vector<std::weak_ptr<fsdp::ParamGroup>> list;
  for (const auto& [i, module] : ranges::views::enumerate(modules)) {
    const auto states = ModuleSharder::attachments<FsdpState>(*module);
    if (states.empty()) {
      fail(what, ": module ", i,
           " is not sharded, expected modules that were given to fully_shard");
    }
    for (const auto& state : states) {
      if (state->find_context() != context()) {
        fail(what, ": module ", i,
             " is part of another sharded model, expected this one; "
             "shard the outermost module first");
      }
      list.push_back(state->group());
    }
  }
  for (const auto& state : states(false)) {
    Controls& controls = state->group()->controls;
    (backward ? controls.backward_prefetch : controls.forward_prefetch) = list;
  }
}

void FsdpModule::set_modules_to_forward_prefetch(const std::vector<Module*>& modules) {
  set_prefetch("set_modules_to_forward_prefetch", modules, false);
}

void FsdpModule::set_modules_to_backward_prefetch(const std::vector<Module*>& modules) {
  set_prefetch("set_modules_to_backward_prefetch", modules, true);
}

void FsdpModule::set_all_reduce_hook(std::function<void(const Tensor&)> hook) {
  only_state("set_all_reduce_hook").group()->gradients().settings.hook = std::move(hook);
}

void FsdpModule::set_gradient_divide_factor(double factor) {
  if (!(factor > 0)) {
    fail("set_gradient_divide_factor: factor is ", factor, ", expected one above 0");
  }
  for (const auto& state : states(false))
    state->group()->gradients().settings.divide_factor = factor;
}

void FsdpModule::set_force_sum_reduction_for_comms(bool enable) {
  if (enable) return;
  fail(
      "set_force_sum_reduction_for_comms: enable is false, expected true; reductions are sums "
      "always, and set_gradient_divide_factor divides them");
}

void FsdpModule::set_unshard_in_backward(bool unshard_in_backward) {
  set_controls(states(false), &Controls::unshards_in_backward, unshard_in_backward);
}

void FsdpModule::set_is_last_backward(bool is_last_backward) {
  context()->set_is_last_backward(is_last_backward);
}

void FsdpModule::set_custom_all_gather(CustomCollective collective) {
  only_state("set_custom_all_gather").group()->controls.all_gather = std::move(collective);
}

void FsdpModule::set_custom_reduce_scatter(CustomCollective collective) {
  const auto& group = only_state("set_custom_reduce_scatter").group();
  group->gradients().set_collective(std::move(collective));
}

void FsdpModule::set_reduce_scatter_unused_params(bool reduce_scatter_unused_params, bool) {
  if (reduce_scatter_unused_params) return;
  fail(
      "set_reduce_scatter_unused_params: value is false, expected true; gradients that backward "
      "did not write are reduced as zeros always, freeze parameters that shall get none");
}

void FsdpModule::set_keep_unsharded_storage(bool keep, bool recurse) {
  set_controls(states(recurse), &Controls::keeps_storage, keep);
}

void FsdpModule::set_manual_backward_finalization(bool enabled) {
  FsdpContext::of("set_manual_backward_finalization", module_)->set_manual_finalization(enabled);
}

GradientReductionHandle FsdpModule::finalize_backward(bool async_op) {
  const auto own = FsdpContext::of("finalize_backward", module_);
  const uint64_t step = own->finalize_manually(!async_op);
  return step == 0 ? GradientReductionHandle() : GradientReductionHandle(own, step);
}

void FsdpModule::reset_iter_state() {
  FsdpContext::of("reset_iter_state", module_)->reset_iter_state();
}

void FsdpModule::set_post_optim_event(Event event) {
  FsdpContext::of("set_post_optim_event", module_)->set_post_optim_event(std::move(event));
}

void share_comm_ctx(const std::vector<Module*>& modules) {
  std::vector<std::shared_ptr<FsdpContext>> contexts;
  for (Module* module : modules) {
    contexts.push_back(ModuleSharder::attachment<FsdpContext>(*module));
    if (contexts.back() && contexts.back()->is_current()) continue;
    fail("share_comm_ctx: module ", contexts.size() - 1,
         " is not the outermost sharded module of a model, expected one that is");
  }
  for (size_t i = 1; i < contexts.size(); ++i) contexts[i]->share_buffers(*contexts[0]);
}

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "fsdp/fsdp_context.h"
#include "weft/error.h"
#include "weft/extend/module_sharder.h"

namespace weft::fsdp {

bool FsdpContext::syncs_all() const {
  return syncs_ && std::ranges::all_of(groups_, [](const auto& group) {
           return group->controls.reduces && group->controls.all_reduces;
         });
}

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

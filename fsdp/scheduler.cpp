// SPDX-License-Identifier: Apache-2.0
#include "fsdp/scheduler.h"

#include <algorithm>

#include "fsdp/param_group.h"

namespace weft::fsdp {

Scheduler::Scheduler(const ParamGroups& groups, Executor& executor)
    : groups_(groups), executor_(executor), states_(groups.size()) {}

Scheduler::GroupState& Scheduler::state_of(const ParamGroup& group) {
  GroupState& state = states_[group.index];
  state.buckets.resize(static_cast<size_t>(group.gradients().buckets()));
  return state;
}

void Scheduler::begin_step(bool training) {
  training_ = training;
  backward_ = false;
}

void Scheduler::abandon() {
  reducing_.clear();
  backward_ = false;
  for (const auto& group : groups_) {
    if (!group->is_built()) continue;
    reshard(*group, Lifetime::step);
    if (state_of(*group).grads == GradState::accumulating) release_grads(*group);
  }
}

void Scheduler::drop_grads(ParamGroup& group) {
  if (state_of(group).grads != GradState::none) release_grads(group);
  state_of(group).buckets.clear();
}

void Scheduler::reset() {
  reducing_.clear();
  states_.assign(groups_.size(), {});
}

void Scheduler::begin_backward() {
  backward_ = true;
  for (const auto& group : groups_) {
    auto& buckets = state_of(*group).buckets;
    std::ranges::fill(buckets, BucketState::incomplete);
  }
}

void Scheduler::slices_changed(ParamGroup& group) {
  state_of(group).params = ShardedState::sharded;
}

void Scheduler::forget(ParamGroup& group) { states_[group.index] = {}; }

void Scheduler::handle(const StepEvent& event, const std::vector<ParamGroup*>& prefetch) {
  ParamGroup& group = *event.group;
  switch (event.kind) {
    case StepEvent::Kind::pre_forward:
      unshard_for_use(group, prefetch);
      return executor_.compute(group);
    case StepEvent::Kind::post_forward: return post_forward(group);
    case StepEvent::Kind::pre_backward:
      if (group.controls.unshards_in_backward) unshard_for_use(group, prefetch);
      allocate_grads(group);
      return executor_.compute(group);
    case StepEvent::Kind::grads_complete: return complete_bucket(group, event.bucket);
    case StepEvent::Kind::grads_continue: return continue_grads(group, event.bucket);
    case StepEvent::Kind::input_grads_complete: return reshard_after_backward(group);
    case StepEvent::Kind::backward_complete: return complete_buckets();
    case StepEvent::Kind::finalize: return finalize();
    case StepEvent::Kind::user_unshard: return unshard(group);
    case StepEvent::Kind::user_wait:
      if (state_of(group).params < ShardedState::unsharding) return;
      return unshard_for_use(group, {});
    case StepEvent::Kind::user_reshard: return reshard(group, Lifetime::update);
  }
}

void Scheduler::unshard(ParamGroup& group) {
  ShardedState& state = state_of(group).params;
  if (state >= ShardedState::unsharding) return;
  size_t level = state == ShardedState::sharded ? 0 : 1;
  state = ShardedState::unsharding;
  for (; level < group.levels().size(); ++level) executor_.unshard(group, level);
}

void Scheduler::unshard_for_use(ParamGroup& group, const std::vector<ParamGroup*>& prefetch) {
  unshard(group);
  state_of(group).params = ShardedState::unsharded;
  executor_.wait_for_unshard(group);
  for (ParamGroup* next : prefetch) unshard(*next);
}

/// Releases the levels whose lifetime has ended.
void Scheduler::reshard(ParamGroup& group, Lifetime ended) {
  ShardedState& state = state_of(group).params;
  const size_t held = state >= ShardedState::unsharding             ? group.levels().size()
                      : state == ShardedState::sharded_post_forward ? 1
                                                                    : 0;
  for (size_t level = held; level-- > 0;) {
    if (group.levels()[level].lifetime() > ended) continue;
    state = level > 0 ? ShardedState::sharded_post_forward : ShardedState::sharded;
    executor_.reshard(group, level);
  }
}

/// Backward follows at once on the root's forward, and reads the same parameters.
void Scheduler::post_forward(ParamGroup& group) {
  const std::optional<bool>& set = group.controls.reshards_after_forward;
  const bool is_root = &group == groups_.back().get();
  if (!set.value_or(!is_root && group.options().reshard_after_forward.frees())) return;
  reshard(group, training_ && !set ? Lifetime::use : Lifetime::step);
}

void Scheduler::reshard_after_backward(ParamGroup& group) {
  if (group.controls.reshards_after_backward) reshard(group, Lifetime::step);
}

void Scheduler::allocate_grads(ParamGroup& group) {
  GradState& state = state_of(group).grads;
  if (state != GradState::none || !group.has_gradients()) return;
  state = GradState::accumulating;
  executor_.allocate_grads(group);
}

void Scheduler::release_grads(ParamGroup& group) {
  state_of(group).grads = GradState::none;
  executor_.release_grads(group);
}

bool Scheduler::may_reduce(const ParamGroup& group, size_t reduction) const {
  const auto& reductions = group.gradients().reductions();
  const ParamGroup::Controls& controls = group.controls;
  return reduction < reductions.size() && controls.reduces &&
         (!reductions[reduction].at_sync || (sync_ && controls.all_reduces));
}

/// Waits for each reduction under way, and starts the bucket's next one.
void Scheduler::advance_reductions() {
  for (size_t count = reducing_.size(); count > 0; --count) {
    auto [group, bucket, reduction] = reducing_.front();
    reducing_.pop_front();
    const bool more = may_reduce(*group, reduction + 1);
    executor_.wait_for_reduce(*group, bucket, reduction, !more);
    const Gradients& gradients = group->gradients();
    const bool has_left_buffer =
        gradients.rest_offloaded() ? !more : reduction + 1 == gradients.buffer_reductions();
    if (has_left_buffer) {
      auto& buckets = state_of(*group).buckets;
      buckets[static_cast<size_t>(bucket)] = BucketState::reduced;
      const bool all = std::ranges::all_of(
          buckets, [](BucketState state) { return state == BucketState::reduced; });
      if (all) release_grads(*group);
    }
    if (!more) continue;
    executor_.reduce_grads(*group, bucket, reduction + 1);
    reducing_.push_back({group, bucket, reduction + 1});
  }
}

/// Ends backward for a bucket: reshards if it was the last, sets `grad()`, and starts the
/// reductions of this micro-step.
void Scheduler::complete_bucket(ParamGroup& group, int bucket) {
  allocate_grads(group);
  GroupState& state = state_of(group);
  state.buckets[static_cast<size_t>(bucket)] = BucketState::complete;
  const bool all = std::ranges::find(state.buckets, BucketState::incomplete) == state.buckets.end();
  if (all && !group.has_frozen()) reshard_after_backward(group);
  start_reductions(group, bucket);
}

void Scheduler::start_reductions(ParamGroup& group, int bucket) {
  size_t reductions = 0;
  while (may_reduce(group, reductions)) ++reductions;
  executor_.close_bucket(group, bucket, reductions);
  auto& [params, grads, buckets] = state_of(group);
  BucketState& state = buckets[static_cast<size_t>(bucket)];
  state = reductions == 0 ? BucketState::kept : BucketState::complete;
  if (reductions == 0) {
    if (grads != GradState::none) grads = GradState::kept_for_sync;
    return;
  }
  advance_reductions();
  executor_.reduce_grads(group, bucket, 0);
  reducing_.push_back({&group, bucket, 0});
}

void Scheduler::continue_grads(ParamGroup& group, int bucket) {
  const auto is_it = [&](const Reducing& reducing) {
    return reducing.group == &group && reducing.bucket == bucket;
  };
  while (std::ranges::any_of(reducing_, is_it)) advance_reductions();
  state_of(group).buckets[static_cast<size_t>(bucket)] = BucketState::incomplete;
  allocate_grads(group);
}

/// Completes the buckets that backward left incomplete, and reduces those that were kept until now.
void Scheduler::complete_buckets() {
  if (!backward_) return;
  for (const auto& group : groups_) {
    if (!group->has_gradients()) continue;
    for (int bucket = 0; bucket < group->gradients().buckets(); ++bucket) {
      const BucketState state = state_of(*group).buckets[static_cast<size_t>(bucket)];
      if (state == BucketState::incomplete) {
        complete_bucket(*group, bucket);
      } else if (state == BucketState::kept && may_reduce(*group, 0)) {
        start_reductions(*group, bucket);
      }
    }
  }
}

void Scheduler::finalize() {
  complete_buckets();
  while (!reducing_.empty()) advance_reductions();
  for (const auto& group : groups_) {
    const ParamGroup::Controls& controls = group->controls;
    const bool keeps = training_ ? !controls.reshards_after_backward
                                 : !controls.reshards_after_forward.value_or(true);
    if (!keeps) reshard(*group, Lifetime::step);
  }
}

}  // namespace weft::fsdp

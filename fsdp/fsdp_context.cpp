// SPDX-License-Identifier: Apache-2.0
#include "fsdp/fsdp_context.h"

#include <algorithm>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/transform.hpp>

#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/tape.h"
#include "weft/graph.h"
#include "weft/trace.h"

namespace weft::fsdp {

std::shared_ptr<FsdpContext> FsdpContext::make(FsdpStates states) {
  std::shared_ptr<FsdpContext> context(new FsdpContext);
  context->use_states(std::move(states));
  context->structure_ = structure_of(context->states_.back()->modules());
  return context;
}

std::shared_ptr<FsdpContext> FsdpContext::of(const char* what, const Module& module) {
  auto context = ModuleSharder::attachment<FsdpContext>(module);
  if (!context) fail(what, ": the model is not sharded, expected one after fully_shard");
  if (!context->is_current()) {
    fail(what, ": the module is part of a sharded model, expected its outermost sharded module");
  }
  return context;
}

void FsdpContext::use_states(FsdpStates states) {
  states_ = std::move(states);
  groups_ = states_ | ranges::views::transform(&FsdpState::group) | ranges::to<ParamGroups>();
  for (const auto& [i, group] : ranges::views::enumerate(groups_)) group->index = i;
  scheduler_.reset();
  identify();
  for (const auto& state : states_) state->set_context(shared_from_this());
}

/// Numbers models of equal parameters in the order in which they were made.
void FsdpContext::identify() {
  uint64_t content = 1;
  for (const auto& group : groups_) content = mixed(content, group->content());
  const uint64_t number = next_of_kind(root().mesh().root().communicator(), content);
  for (const auto& group : groups_) group->set_model(mixed(content, number), number);
}

void FsdpContext::build(ParamGroup& group) {
  if (group.build()) pool_->set_device(group.device());
}

void FsdpContext::lazy_init() {
  for (const auto& group : groups_) build(*group);
}

void FsdpContext::materialize(ParamGroup& group, Device device) {
  build(group);
  if (!group.awaits_memory()) return;
  abandon();
  scheduler_.forget(group);
  group.materialize(device);
  pool_->set_device(device);
}

void FsdpContext::count(const std::string& axes, int64_t bytes, int64_t copied) {
  if (running_ ? !training_ : !Context::current().grad_enabled) return;
  traffic_.copied += copied;
  add_received(traffic_, axes, bytes);
}

/// Work queued on `later` from now on starts after the work queued on `earlier` so far.
static void order(const Stream& earlier, const Stream& later) {
  Event::record(earlier).wait(later);
}

static TraceSpan waiting(const char* name, const ParamGroup& group, Device device) {
  return TraceSpan(name, static_cast<int64_t>(group.index), device, TraceSpan::Time::waits);
}

void FsdpContext::unshard(ParamGroup& group, size_t level) {
  const TraceSpan span = waiting("gather", group, cpu);
  const Level& gathered = group.levels()[level];
  count(gathered.ranks().axes, 0, gathered.copied());
  for (const auto& [axes, bytes] : gathered.traffic()) count(axes, bytes, 0);
  const StreamScope scope(stream(StreamRole::gather));
  group.unshard(level, *pool_);
}

void FsdpContext::wait_for_unshard(ParamGroup& group) {
  const TraceSpan span = waiting("wait for parameters", group, pool_->device());
  group.wait_for_unshard();
}

void FsdpContext::release_grads(ParamGroup& group) {
  order(computing(), stream(StreamRole::scatter));
  const StreamScope scope(stream(StreamRole::scatter));
  group.gradients().release_buffer(*pool_);
}

/// The reductions' stream reduces the gradients while backward of the next group computes.
void FsdpContext::reduce_grads(ParamGroup& group, int bucket, size_t reduction) {
  const TraceSpan span = waiting("reduce", group, cpu);
  order(computing(), stream(StreamRole::scatter));
  const StreamScope scope(stream(StreamRole::scatter));
  const Gradients& gradients = group.gradients();
  count(gradients.reductions()[reduction].ranks.axes, gradients.traffic(bucket, reduction),
        gradients.copied(reduction));
  group.reduce_grads(bucket, reduction);
}

/// The computing stream waits for gradients only at the end of the step.
void FsdpContext::wait_for_reduce(ParamGroup& group, int bucket, size_t reduction, bool last) {
  const TraceSpan span = waiting("wait for gradients", group, cpu);
  const StreamScope scope(stream(StreamRole::scatter));
  const SubjectScope subject = group.reducing(bucket, reduction);
  group.gradients().wait_for_reduce(bucket, reduction, last);
}

void FsdpContext::end_step() {
  running_ = nullptr;
  first_ = nullptr;
  backward_begun_ = false;
  for (const auto& group : groups_) group->gradients().show();
}

/// Ends a step that did not finish, because no backward came or it threw. Its groups release what
/// they hold: the parameters may change before the next step.
void FsdpContext::abandon() {
  for (const auto& group : groups_) group->wait_quietly();
  order(stream(StreamRole::scatter), computing());
  scheduler_.abandon();
  if (running_ && !running_->complete) *running_ = {};
  end_step();
}

void FsdpContext::note_changes(ParamGroup& group) {
  if (group.take_slices_changed()) invalidate(group);
}

/// The next use of the group gathers the slices again.
void FsdpContext::invalidate(ParamGroup& group) {
  scheduler_.slices_changed(group);
  // A record does not wait for an event from before it; the stream must take part in it.
  if (post_optim_event_.empty() || Graph::recording()) {
    order(computing(), stream(StreamRole::gather));
  } else {
    post_optim_event_.wait(stream(StreamRole::gather));
  }
}

void FsdpContext::begin_step(bool training) {
  ParamGroup::end_departed();
  if (running_) abandon();
  for (const auto& state : states_) state->forget_forward();
  training_ = training;
  ++step_;
  scheduler_.begin_step(training);
  take_over_changes();
  for (const auto& group : groups_) {
    group->copy_set_values();
    note_changes(*group);
    // A recorded graph finds other slices whenever it is replayed, and changes them.
    in_graph_ = in_graph_ || Graph::recording();
    if (in_graph_) invalidate(*group);
  }
  post_optim_event_ = {};
  running_ = &recordings_[training ? 1 : 0];
  if (running_->diverged) *running_ = {};
  running_->at = 0;
}

/// Begins a backward that is not that of the last forward: it follows no recording and makes none.
void FsdpContext::begin_unrecorded_step() {
  unrecorded_ = {};
  unrecorded_.complete = unrecorded_.diverged = true;
  training_ = true;
  ++step_;
  scheduler_.begin_step(true);
  running_ = &unrecorded_;
}

/// Checks the event against the recording, or adds it. The user's own events may come and stay
/// away.
void FsdpContext::follow(const StepEvent& event) {
  std::vector<StepEvent>& events = running_->events;
  size_t& at = running_->at;
  if (!running_->complete) return events.push_back(event);
  if (running_->diverged) return;
  const auto is_next = [&] { return at < events.size() && events[at] == event; };
  while (!is_next() && at < events.size() && events[at].is_of_user()) ++at;
  if (is_next()) {
    ++at;
    return;
  }
  if (event.is_of_user()) return;
  running_->diverged = true;
  if (!event.group->is_first_rank()) return;
  warn("fully_shard: ", event.group->title(),
       " ran in a different order than in the previous step; this step runs without prefetch in "
       "the recorded order");
}

void FsdpContext::handle(StepEvent::Kind kind, ParamGroup& group, int bucket) {
  const StepEvent event{kind, &group, bucket};
  if (!running_) return scheduler_.handle(event, {});
  follow(event);
  const bool recorded = running_->is_followed() && !event.is_of_user();
  scheduler_.handle(event,
                    recorded ? running_->to_prefetch(running_->at - 1) : prefetch_list(event));
}

void FsdpContext::pre_forward(ParamGroup& group) {
  const bool starts = (&group == &root() || &group == first_) && !backward_begun_;
  if (starts || !running_) {
    begin_step(Context::current().grad_enabled);
    first_ = &group;
  }
  note_changes(group);
  handle(StepEvent::Kind::pre_forward, group);
}

void FsdpContext::post_forward(ParamGroup& group) {
  if (&group == first_) {
    for (const auto& state : states_) state->close_forward();
  }
  handle(StepEvent::Kind::post_forward, group);
  if (&group != first_) return;
  if (training_) {
    wait_for_host_copies();
  } else {
    finalize();
  }
}

/// The first hook that a backward calls begins it, and the first backward of a step that of the
/// step.
void FsdpContext::begin_backward() {
  if (!std::exchange(in_backward_, true)) {
    // Only a recomputation may have held the model, and have released it during backward.
    weft::after_backward([held = weak_from_this()](bool failed) {
      const auto context = held.lock();
      if (!context) return;
      context->in_backward_ = false;
      failed ? context->abandon() : context->end_backward();
    });
  }
  if (backward_begun_) return;
  if (running_ && !training_) abandon();
  if (!running_) begin_unrecorded_step();
  backward_begun_ = true;
  scheduler_.set_sync(syncs_);
  scheduler_.begin_backward();
  for (const auto& group : groups_) group->gradients().begin_backward();
}

void FsdpContext::in_backward(StepEvent::Kind kind, ParamGroup& group) {
  if (!backward_fills_sinks()) {
    if (kind == StepEvent::Kind::pre_backward) gather_for_backward(group);
    return;
  }
  begin_backward();
  // If the slices changed, what forward saved of them is out of date, and the tape reports it.
  if (kind == StepEvent::Kind::pre_backward) note_changes(group);
  handle(kind, group);
}

/// Memory that is new is ready on the stream of backward, and on the side stream if that writes.
void FsdpContext::pre_accumulate_grad(ParamGroup& group, size_t i) {
  const Stream writer = computing();
  const StreamScope scope(backward_stream(pool_->device()));
  begin_backward();
  bool is_new = !group.gradients().has_memory();
  const int bucket = group.gradients().pre_accumulate_grad(i);
  if (bucket >= 0) {
    scheduler_.set_sync(syncs_);
    handle(StepEvent::Kind::grads_continue, group, bucket);
    order(stream(StreamRole::scatter), computing());
    group.gradients().reopen(bucket);
    is_new = true;
  }
  scheduler_.allocate_grads(group);
  if (is_new && writer != computing()) order(computing(), writer);
}

void FsdpContext::post_accumulate_grad(ParamGroup& group, size_t i) {
  begin_backward();
  const int bucket = group.gradients().post_accumulate_grad(i);
  if (bucket >= 0) handle(StepEvent::Kind::grads_complete, group, bucket);
}

void FsdpContext::finalize_backward() {
  const bool syncs = syncs_ && std::ranges::all_of(groups_, [](const auto& group) {
                       return group->controls.reduces && group->controls.all_reduces;
                     });
  finalize();
  if (!syncs) return;
  traffic_last_ = traffic_;
  traffic_ = {};
}

void FsdpContext::finalize() {
  handle(StepEvent::Kind::finalize, root());
  {
    const TraceSpan span("wait for the streams", -1, pool_->device(), TraceSpan::Time::waits);
    order(stream(StreamRole::gather), computing());
    order(stream(StreamRole::scatter), computing());
  }
  wait_for_host_copies();
  const bool is_new = !std::exchange(running_->complete, true);
  if ((is_new || is_strict_plan()) && !running_->diverged) check_schedule();
  end_step();
  if (!training_) return;
  for (const auto& group : groups_) group->run_post_accumulate_hooks();
}

/// Waits until the streams no longer use memory of the host, which may be read and written then.
void FsdpContext::wait_for_host_copies() {
  const bool offloads =
      std::ranges::any_of(groups_, [](const auto& group) { return group->offloads(); });
  if (!offloads) return;
  Event::record(stream(StreamRole::gather)).synchronize();
  Event::record(stream(StreamRole::scatter)).synchronize();
}

/// The schedule is that of the steps that follow. Those on `meta` count memory.
void FsdpContext::check_schedule() const {
  if (pool_->device().kind == DeviceKind::meta) return;
  const Program program =
      compiled(*running_, groups_, {{.training = training_, .sync = syncs_}}).program;
  check("fully_shard", {&program, 1});
}

Schedule FsdpContext::schedule(const std::vector<StepKind>& steps) const {
  const bool training = steps[0].training;
  const Recording& recorded = recordings_[training ? 1 : 0];
  if (recorded.is_followed()) return compiled(recorded, groups_, steps);
  return compiled(expected_step(groups_, training), groups_, steps);
}

}  // namespace weft::fsdp

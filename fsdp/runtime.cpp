// SPDX-License-Identifier: Apache-2.0
#include "fsdp/runtime.h"

#include <algorithm>
#include <iostream>
#include <optional>

#include "weft/autograd.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/graph.h"
#include "weft/trace.h"

namespace weft::fsdp {

Runtime::Runtime(Units units)
    : units_(std::move(units)), conductor_(units_, [this](const Action& action) { hear(action); }) {
  for (size_t i = 0; i < units_.size(); ++i) {
    units_[i]->attach(this, i);
  }
}

Runtime::~Runtime() {
  for (const auto& unit : units_) unit->detach(this);
}

void Runtime::build() {
  for (const auto& unit : units_) unit->build();
}

void Runtime::forget(Unit& unit) {
  abandon();
  conductor_.forget(unit);
}

void Runtime::moved(const std::string& axes, int64_t bytes, int64_t copied) {
  if (!training_) return;
  traffic_.copied += copied;
  traffic_.received += bytes;
  add_traffic(traffic_.by_axes, axes, bytes);
}

/// What is queued on `later` from now on starts after what is queued on `earlier` by now.
static void order(const Stream& earlier, const Stream& later) {
  Event::record(earlier).wait(later);
}

/// What takes time or waits, as it stands in a trace; nothing for the rest.
static const char* span_of(Action::Kind kind) {
  if (kind == Action::Kind::gather) return "gather";
  if (kind == Action::Kind::wait) return "wait for parameters";
  if (kind == Action::Kind::reduce) return "reduce";
  return kind == Action::Kind::wait_reduced ? "wait for gradients" : nullptr;
}

/// Does what the conductor says. Parameters and gradients move on streams of their own.
void Runtime::hear(const Action& action) {
  Unit& unit = *action.unit;
  std::optional<TraceSpan> span;
  if (const char* name = span_of(action.kind)) {
    // Compute waits for parameters; for gradients it does so at the end.
    const bool computes = action.kind == Action::Kind::wait;
    span.emplace(name, static_cast<int64_t>(unit.index), computes ? pool_.device() : cpu,
                 TraceSpan::Time::waits);
  }
  unit.runs_here();
  switch (action.kind) {
    case Action::Kind::gather: {
      const Level& level = unit.levels()[action.step];
      moved(level.group().axes, level.traffic(), level.copied());
      const StreamScope scope(stream(StreamRole::gather));
      unit.gather(action.step, pool_);
      break;
    }
    case Action::Kind::wait:
      unit.wait();
      break;
    case Action::Kind::compute:
      break;
    case Action::Kind::free:
      unit.free(action.step, pool_);
      break;
    default:
      hear_of_gradients(action);
  }
}

void Runtime::hear_of_gradients(const Action& action) {
  Gradients& gradients = action.unit->gradients();
  // Backward goes on with the next unit while this one's are reduced.
  const bool by_compute =
      action.kind == Action::Kind::take_gradients || action.kind == Action::Kind::settle;
  if (action.kind == Action::Kind::reduce || action.kind == Action::Kind::give_gradients) {
    order(computing(), stream(StreamRole::scatter));
  }
  const StreamScope scope(by_compute ? computing() : stream(StreamRole::scatter));
  switch (action.kind) {
    case Action::Kind::take_gradients:
      gradients.take(pool_);
      break;
    case Action::Kind::give_gradients:
      gradients.give(pool_);
      break;
    case Action::Kind::settle:
      gradients.settle(action.bucket, syncs_);
      break;
    case Action::Kind::reduce:
      moved(gradients.reductions()[action.step].group.axes,
            gradients.traffic(action.bucket, action.step), gradients.copied(action.step));
      gradients.start(action.bucket, action.step);
      break;
    case Action::Kind::wait_reduced:
      gradients.wait(action.bucket, action.last);
      break;
    default:
      break;
  }
}

/// A step that was left on its way (no backward came, or it threw) gives back what it held: its
/// parameters may change before the next one.
void Runtime::abandon() {
  for (const auto& unit : units_) unit->finish_quietly();
  order(stream(StreamRole::scatter), computing());
  conductor_.begin(training_);
  if (running_ && !running_->complete) *running_ = {};
  running_ = nullptr;
  first_ = nullptr;
  backward_begun_ = false;
}

void Runtime::note_changes(Unit& unit) {
  if (unit.slices_changed()) renew(unit);
}

/// What was made of its slices is made again.
void Runtime::renew(Unit& unit) {
  conductor_.update(unit);
  order(computing(), stream(StreamRole::gather));
}

void Runtime::begin(bool training) {
  training_ = training;
  Unit::end_departed();
  abandon();
  build();
  for (const auto& unit : units_) {
    unit->check_frozen();
    unit->take_set_values();
    note_changes(*unit);
    // What a graph records finds other slices whenever it is played, and leaves others.
    is_recorded_ = is_recorded_ || Graph::recording();
    if (is_recorded_) renew(*unit);
  }
  running_ = &recordings_[training ? 1 : 0];
  if (running_->astray) *running_ = {};
  running_->at = 0;
}

/// A backward whose forward is not the last one: it follows no schedule and writes none.
void Runtime::begin_unscheduled() {
  unscheduled_ = {};
  unscheduled_.complete = unscheduled_.astray = true;
  training_ = true;
  running_ = &unscheduled_;
}

/// Follows the recording, or writes it.
void Runtime::event(StepEvent::Kind kind, Unit& unit, int bucket) {
  Recording& recording = *running_;
  StepEvent event{kind, &unit, bucket};
  if (!recording.complete) {
    recording.events.push_back(event);
  } else if (!recording.astray) {
    if (recording.at < recording.events.size() && recording.events[recording.at] == event) {
      ++recording.at;
      return;
    }
    recording.astray = true;
    if (!unit.is_first_rank()) return;
    std::cerr << concat("fully_shard: module ", in_quotes(unit.name()),
                        " comes in another order than in the step before; this step runs without "
                        "prefetch\n");
  }
}

std::vector<Unit*> Runtime::ahead(const Unit& unit) const {
  if (!running_->is_followed()) return {};
  return running_->ahead(running_->at - 1, unit.options().prefetch);
}

void Runtime::before_forward(Unit& unit) {
  const bool starts = (&unit == &root() || &unit == first_) && !backward_begun_;
  if (starts || !running_) {
    begin(Context::current().grad_enabled);
    first_ = &unit;
  }
  note_changes(unit);
  event(StepEvent::Kind::forward, unit);
  conductor_.forward(unit, ahead(unit));
}

void Runtime::after_forward(Unit& unit) {
  event(StepEvent::Kind::forward_done, unit);
  conductor_.forward_done(unit);
  if (&unit != first_) return;
  if (training_) {
    await_host();
  } else {
    end();
  }
}

/// Whatever comes first of a backward begins it.
void Runtime::enter_backward() {
  if (backward_begun_) return;
  if (running_ && !training_) abandon();
  if (!running_) begin_unscheduled();
  backward_begun_ = true;
  weft::after_backward([last = units_.back()->weak_from_this()](bool failed) {
    // A checkpoint may have held the model, and have let it go.
    const auto root = last.lock();
    if (!root || !root->is_attached()) return;
    failed ? root->runtime().abandon() : root->runtime().finish_backward();
  });
  conductor_.set_sync(syncs_);
  conductor_.begin_backward();
  for (const auto& unit : units_) unit->gradients().expect();
}

void Runtime::before_backward(Unit& unit) {
  enter_backward();
  // What forward saved of them is then out of date, and the tape says so.
  note_changes(unit);
  event(StepEvent::Kind::backward, unit);
  conductor_.backward(unit, ahead(unit));
}

void Runtime::need_gradient_memory(Unit& unit, size_t number) {
  enter_backward();
  if (const int bucket = unit.gradients().expect_more(number); bucket >= 0) {
    event(StepEvent::Kind::gradients_again, unit, bucket);
    conductor_.gradients_again(unit, bucket);
  }
  conductor_.take_gradients(unit);
}

void Runtime::gradient_complete(Unit& unit, size_t number) {
  enter_backward();
  const int bucket = unit.gradients().complete(number);
  if (bucket < 0) return;
  event(StepEvent::Kind::gradients_done, unit, bucket);
  conductor_.gradients_done(unit, bucket);
}

void Runtime::after_backward(Unit& unit) {
  enter_backward();
  event(StepEvent::Kind::backward_done, unit);
  conductor_.backward_done(unit);
}

void Runtime::finish_backward() {
  end();
  if (!syncs_) return;
  traffic_last_ = traffic_;
  traffic_ = {};
}

void Runtime::end() {
  event(StepEvent::Kind::end, root());
  conductor_.end();
  {
    const TraceSpan span("wait for the streams", -1, pool_.device(), TraceSpan::Time::waits);
    order(stream(StreamRole::gather), computing());
    order(stream(StreamRole::scatter), computing());
  }
  await_host();
  running_->complete = true;
  backward_begun_ = false;
  running_ = nullptr;
  first_ = nullptr;
}

/// What rests on the host is the host's again: it may be read and written.
void Runtime::await_host() {
  const bool offloads =
      std::any_of(units_.begin(), units_.end(), [](const auto& unit) { return unit->offloads(); });
  if (!offloads) return;
  Event::record(stream(StreamRole::gather)).synchronize();
  Event::record(stream(StreamRole::scatter)).synchronize();
}

Schedule Runtime::schedule(const std::vector<StepKind>& steps) const {
  const bool training = steps[0].training;
  const Recording& recorded = recordings_[training ? 1 : 0];
  if (recorded.is_followed()) return compiled(recorded, units_, steps);
  return compiled(expected_step(units_, training), units_, steps);
}

}  // namespace weft::fsdp

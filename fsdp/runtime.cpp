// SPDX-License-Identifier: Apache-2.0
#include "fsdp/runtime.h"

#include <iostream>

#include "weft/autograd.h"
#include "weft/context.h"
#include "weft/error.h"

namespace weft::fsdp {

using Kind = Event::Kind;

Runtime::Runtime(std::vector<std::shared_ptr<Unit>> units) : units_(std::move(units)) {
  for (const auto& unit : units_) unit->runtime = this;
}

/// A step that was left on its way (no backward came, or it threw) gives back what it held: its
/// parameters may change before the next one.
void Runtime::abandon() {
  for (const auto& unit : units_) unit->abandon(pool_);
  if (running_ && !running_->complete) *running_ = {};
  running_ = nullptr;
  scattering_ = nullptr;
  backward_begun_ = false;
}

void Runtime::begin(bool training) {
  abandon();
  training_ = training;
  received_ = 0;
  running_ = &recordings_[training ? 1 : 0];
  if (running_->astray) *running_ = {};
  running_->at = 0;
}

/// A backward whose forward is not the last one: it follows no schedule and writes none.
void Runtime::begin_unscheduled() {
  unscheduled_ = {};
  unscheduled_.complete = unscheduled_.astray = true;
  training_ = true;
  received_ = 0;
  running_ = &unscheduled_;
}

/// Follows the recording, or writes it.
void Runtime::event(Kind kind, Unit& unit) {
  Recording& recording = *running_;
  Event event{kind, &unit};
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

void Runtime::gather(Unit& unit) {
  if (unit.is_held()) return;
  received_ += unit.gather_traffic();
  unit.start_gather(pool_);
}

static bool follows(const Recording& recording) { return recording.complete && !recording.astray; }

void Runtime::before_forward(Unit& unit) {
  if (&unit == &root() && !backward_begun_) begin(Context::current().grad_enabled);
  if (!running_) begin(Context::current().grad_enabled);
  if (!unit.is_built()) unit.build();
  event(Kind::forward, unit);
  gather(unit);
  unit.wait_gathered();
  if (!follows(*running_)) return;
  for (Unit* next : running_->ahead(running_->at - 1, unit.options().prefetch)) gather(*next);
}

void Runtime::after_forward(Unit& unit) {
  event(Kind::forward_done, unit);
  bool is_root = &unit == &root();
  if (!is_root && unit.options().reshard_after_forward) unit.free_gathered(pool_);
  if (is_root && !training_) end();
}

void Runtime::expect_backward() {
  backward_begun_ = true;
  for (const auto& unit : units_) unit->expect_gradients();
  after_backward([this](bool failed) { failed ? abandon() : finish_backward(); });
}

void Runtime::before_backward(Unit& unit) {
  if (!running_) begin_unscheduled();
  if (!backward_begun_) expect_backward();
  event(Kind::backward, unit);
  gather(unit);
  unit.wait_gathered();
  if (follows(*running_)) {
    for (Unit* next : running_->ahead(running_->at - 1, unit.options().prefetch)) gather(*next);
  }
  unit.take_gradient_buffer(pool_);
}

void Runtime::gradients_complete(Unit& unit) {
  event(Kind::gradients_done, unit);
  if (!unit.has_frozen()) unit.free_gathered(pool_);
  scatter(unit);
}

void Runtime::scatter(Unit& unit) {
  if (scattering_) scattering_->wait_scattered(pool_);
  received_ += unit.scatter_traffic();
  unit.start_scatter(pool_);
  scattering_ = &unit;
}

void Runtime::finish_backward() {
  for (const auto& unit : units_) {
    if (unit->incomplete() == 0) continue;
    unit->free_gathered(pool_);
    scatter(*unit);
  }
  if (scattering_) scattering_->wait_scattered(pool_);
  scattering_ = nullptr;
  end();
  received_last_ = received_;
}

void Runtime::end() {
  event(Kind::end, root());
  for (const auto& unit : units_) unit->free_gathered(pool_);
  running_->complete = true;
  backward_begun_ = false;
  running_ = nullptr;
}

Schedule Runtime::training_schedule() const {
  if (recordings_[1].complete && !recordings_[1].astray) return compiled(recordings_[1], units_);
  Recording expected;
  expected.events = expected_events(units_);
  expected.complete = true;
  return compiled(expected, units_);
}

}  // namespace weft::fsdp

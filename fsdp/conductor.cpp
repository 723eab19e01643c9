// SPDX-License-Identifier: Apache-2.0
#include "fsdp/conductor.h"

#include <algorithm>

#include "fsdp/unit.h"

namespace weft::fsdp {

Conductor::Conductor(const std::vector<std::shared_ptr<Unit>>& units, Listener listener)
    : units_(units), listener_(std::move(listener)), states_(units.size()) {}

Conductor::State& Conductor::state(const Unit& unit) {
  State& state = states_[unit.index];
  state.held.resize(unit.levels().size());
  state.done.resize(static_cast<size_t>(unit.gradients().buckets()));
  return state;
}

void Conductor::hear(Action::Kind kind, Unit& unit, size_t step, int bucket, bool last) {
  listener_({kind, &unit, step, bucket, backward_, last});
}

void Conductor::begin(bool training) {
  flights_.clear();
  training_ = training;
  backward_ = false;
  for (const auto& unit : units_) {
    if (!unit->is_built()) continue;
    release(*unit, true);
    State& own = state(*unit);
    if (own.has_gradients && !own.holds_sums) give_gradients(*unit);
  }
}

void Conductor::begin_backward() {
  backward_ = true;
  for (const auto& unit : units_) {
    State& own = state(*unit);
    std::fill(own.done.begin(), own.done.end(), false);
    own.read = 0;
  }
}

void Conductor::update(Unit& unit) {
  State& own = state(unit);
  std::fill(own.held.begin(), own.held.end(), false);
}

void Conductor::forget(Unit& unit) { states_[unit.index] = {}; }

void Conductor::gather(Unit& unit) {
  State& own = state(unit);
  const bool has_top = own.held.empty() || own.held.back();
  for (size_t level = 0; level < own.held.size() && !(has_top && level > 0); ++level) {
    if (own.held[level]) continue;
    own.held[level] = true;
    hear(Action::Kind::gather, unit, level);
  }
}

/// Whole parameters for now, and those needed soon on their way.
void Conductor::need(Unit& unit, const std::vector<Unit*>& ahead) {
  gather(unit);
  hear(Action::Kind::wait, unit);
  for (Unit* next : ahead) gather(*next);
}

void Conductor::release(Unit& unit, bool step_too) {
  State& own = state(unit);
  for (size_t level = own.held.size(); level-- > 0;) {
    const Lifetime lifetime = unit.levels()[level].lifetime();
    const bool frees = lifetime == Lifetime::use || (lifetime == Lifetime::step && step_too);
    if (!own.held[level] || !frees) continue;
    own.held[level] = false;
    hear(Action::Kind::free, unit, level);
  }
}

void Conductor::forward(Unit& unit, const std::vector<Unit*>& ahead) {
  need(unit, ahead);
  hear(Action::Kind::compute, unit);
}

void Conductor::forward_done(Unit& unit) {
  const bool is_root = &unit == units_.back().get();
  if (!is_root && unit.options().reshard_after_forward.frees()) release(unit, !training_);
}

void Conductor::backward(Unit& unit, const std::vector<Unit*>& ahead) {
  need(unit, ahead);
  take_gradients(unit);
  hear(Action::Kind::compute, unit);
}

void Conductor::take_gradients(Unit& unit) {
  State& own = state(unit);
  if (own.has_gradients || !unit.has_gradients()) return;
  own.has_gradients = true;
  hear(Action::Kind::take_gradients, unit);
}

void Conductor::give_gradients(Unit& unit) {
  State& own = state(unit);
  own.has_gradients = own.holds_sums = false;
  hear(Action::Kind::give_gradients, unit);
}

bool Conductor::may_reduce(const Unit& unit, size_t step) const {
  const auto& reductions = unit.gradients().reductions();
  return step < reductions.size() && (sync_ || !reductions[step].at_sync);
}

/// Each reduction under way ends, and the next of its chain begins.
void Conductor::advance() {
  for (size_t count = flights_.size(); count > 0; --count) {
    Flight flight = flights_.front();
    flights_.pop_front();
    const bool more = may_reduce(*flight.unit, flight.step + 1);
    hear(Action::Kind::wait_reduced, *flight.unit, flight.step, flight.bucket, !more);
    State& own = state(*flight.unit);
    const Gradients& gradients = flight.unit->gradients();
    const bool is_read = gradients.rest_on_host() ? !more : flight.step == 0;
    if (is_read && ++own.read == gradients.buckets()) give_gradients(*flight.unit);
    if (!more) continue;
    ++flight.step;
    hear(Action::Kind::reduce, *flight.unit, flight.step, flight.bucket);
    flights_.push_back(flight);
  }
}

void Conductor::gradients_done(Unit& unit, int bucket) {
  take_gradients(unit);
  State& own = state(unit);
  own.done[static_cast<size_t>(bucket)] = true;
  const bool all = std::find(own.done.begin(), own.done.end(), false) == own.done.end();
  if (all && !unit.has_frozen()) release(unit, true);
  hear(Action::Kind::settle, unit, 0, bucket);
  if (!may_reduce(unit, 0)) {
    own.holds_sums = own.has_gradients;
    return;
  }
  advance();
  hear(Action::Kind::reduce, unit, 0, bucket);
  flights_.push_back({&unit, bucket, 0});
}

void Conductor::gradients_again(Unit& unit, int bucket) {
  const auto is_it = [&](const Flight& flight) {
    return flight.unit == &unit && flight.bucket == bucket;
  };
  while (std::any_of(flights_.begin(), flights_.end(), is_it)) advance();
  State& own = state(unit);
  own.done[static_cast<size_t>(bucket)] = false;
  if (may_reduce(unit, 0)) --own.read;
}

void Conductor::backward_done(Unit& unit) { release(unit, true); }

void Conductor::end() {
  if (backward_) {
    for (const auto& unit : units_) {
      if (!unit->has_gradients()) continue;
      for (int bucket = 0; bucket < unit->gradients().buckets(); ++bucket) {
        if (!state(*unit).done[static_cast<size_t>(bucket)]) gradients_done(*unit, bucket);
      }
    }
    while (!flights_.empty()) advance();
  }
  for (const auto& unit : units_) release(*unit, true);
}

}  // namespace weft::fsdp

// SPDX-License-Identifier: Apache-2.0
#include "fsdp/schedule.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "fsdp/unit.h"

namespace weft::fsdp {

static bool needs(const Event& event) {
  return event.kind == Event::Kind::forward || event.kind == Event::Kind::backward;
}

std::vector<Unit*> Recording::ahead(size_t index, int depth) const {
  std::vector<Unit*> units;
  for (size_t i = index + 1; i < events.size() && static_cast<int>(units.size()) < depth; ++i) {
    if (!needs(events[i])) continue;
    if (events[i].kind != events[index].kind) break;
    bool known = events[i].unit == events[index].unit ||
                 std::find(units.begin(), units.end(), events[i].unit) != units.end();
    if (!known) units.push_back(events[i].unit);
  }
  return units;
}

std::vector<Event> expected_events(const std::vector<std::shared_ptr<Unit>>& units) {
  using Kind = Event::Kind;
  Unit* root = units.back().get();
  std::vector<Event> events{{Kind::forward, root}};
  for (const auto& unit : units) {
    if (unit.get() == root) continue;
    events.push_back({Kind::forward, unit.get()});
    events.push_back({Kind::forward_done, unit.get()});
  }
  events.push_back({Kind::forward_done, root});
  events.push_back({Kind::backward, root});
  for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
    if (unit->get() == root) continue;
    events.push_back({Kind::backward, unit->get()});
    if ((*unit)->has_gradients()) events.push_back({Kind::gradients_done, unit->get()});
  }
  if (root->has_gradients()) events.push_back({Kind::gradients_done, root});
  events.push_back({Kind::end, root});
  return events;
}

namespace {

/// Plays the events through without doing anything, as the runtime would.
class Player {
 public:
  Player(const Recording& recording, const std::vector<std::shared_ptr<Unit>>& units)
      : recording_(recording), units_(units), root_(*units.back()) {}

  Schedule play() {
    for (size_t i = 0; i < recording_.events.size(); ++i) step(i);
    return std::move(schedule_);
  }

 private:
  void step(size_t i) {
    const Event& event = recording_.events[i];
    Unit* unit = event.unit;
    backward_ = backward_ || event.kind == Event::Kind::backward;
    switch (event.kind) {
      case Event::Kind::forward:
      case Event::Kind::backward:
        gather(unit);
        add(Action::Kind::wait, unit, held_.at(unit));
        for (Unit* next : recording_.ahead(i, unit->options().prefetch)) gather(next);
        if (event.kind == Event::Kind::backward && unit->has_gradients()) gradient_buffer(unit);
        add(Action::Kind::compute, unit);
        break;
      case Event::Kind::forward_done:
        if (unit != &root_ && unit->options().reshard_after_forward) release(unit);
        break;
      case Event::Kind::gradients_done:
        if (!unit->has_frozen()) release(unit);
        scatter(unit);
        break;
      case Event::Kind::end:
        finish();
        break;
    }
  }

  void add(Action::Kind kind, Unit* unit, int buffer = -1) {
    schedule_.actions.push_back({kind, unit, backward_, buffer});
  }

  int take(const Unit* unit) {
    if (unit->ranks() == 1) return -1;
    auto& free = free_[unit->buffer_bytes()];
    if (!free.empty()) {
      int number = free.front();
      free.erase(free.begin());
      return number;
    }
    schedule_.buffer_bytes += static_cast<int64_t>(unit->buffer_bytes());
    return made_++;
  }

  void give(const Unit* unit, int buffer) {
    if (buffer >= 0) free_[unit->buffer_bytes()].push_back(buffer);
  }

  void gather(Unit* unit) {
    if (held_.contains(unit)) return;
    held_[unit] = take(unit);
    schedule_.received += unit->gather_traffic();
    add(Action::Kind::gather, unit, held_[unit]);
  }

  void release(Unit* unit) {
    auto found = held_.find(unit);
    if (found == held_.end()) return;
    give(unit, found->second);
    add(Action::Kind::free, unit, found->second);
    held_.erase(found);
  }

  void scatter(Unit* unit) {
    wait_scatter();
    schedule_.received += unit->scatter_traffic();
    scattering_ = unit;
    scattered_.insert(unit);
    add(Action::Kind::scatter, unit, gradient_buffer(unit));
  }

  int gradient_buffer(Unit* unit) {
    auto found = gradient_buffers_.find(unit);
    if (found != gradient_buffers_.end()) return found->second;
    return gradient_buffers_[unit] = take(unit);
  }

  void wait_scatter() {
    if (!scattering_) return;
    add(Action::Kind::wait_scatter, scattering_, gradient_buffers_[scattering_]);
    give(scattering_, gradient_buffers_[scattering_]);
    gradient_buffers_.erase(scattering_);
    scattering_ = nullptr;
  }

  void finish() {
    if (backward_) {
      for (const auto& unit : units_) {
        if (scattered_.contains(unit.get()) || !unit->has_gradients()) continue;
        release(unit.get());
        scatter(unit.get());
      }
      wait_scatter();
    }
    for (const auto& unit : units_) release(unit.get());
  }

  const Recording& recording_;
  const std::vector<std::shared_ptr<Unit>>& units_;
  const Unit& root_;
  Schedule schedule_;
  bool backward_ = false;
  std::map<Unit*, int> held_;
  std::map<Unit*, int> gradient_buffers_;
  std::map<size_t, std::vector<int>> free_;
  std::set<Unit*> scattered_;
  Unit* scattering_ = nullptr;
  int made_ = 0;
};

}  // namespace

Schedule compiled(const Recording& recording, const std::vector<std::shared_ptr<Unit>>& units) {
  return Player(recording, units).play();
}

std::string Schedule::text() const {
  static constexpr const char* kVerbs[] = {"gather", "wait",    "compute",
                                           "free",   "scatter", "wait for scatter of"};
  std::ostringstream out;
  for (const Action& action : actions) {
    out << (action.backward ? "backward  " : "forward   ") << kVerbs[static_cast<int>(action.kind)]
        << ' ' << (action.unit->name().empty() ? "the root" : action.unit->name());
    if (action.buffer >= 0) out << ", buffer " << action.buffer;
    out << '\n';
  }
  out << "buffers: " << buffer_bytes << " bytes; received a step: " << received << " bytes\n";
  return out.str();
}

}  // namespace weft::fsdp

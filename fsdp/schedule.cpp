// SPDX-License-Identifier: Apache-2.0
#include "fsdp/schedule.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "fsdp/conductor.h"
#include "fsdp/unit.h"
#include "weft/error.h"

namespace weft::fsdp {

void add_traffic(std::vector<AxisTraffic>& by_axes, const std::string& axes, int64_t bytes) {
  if (bytes == 0) return;
  auto found = std::find_if(by_axes.begin(), by_axes.end(),
                            [&](const AxisTraffic& other) { return other.axes == axes; });
  if (found == by_axes.end()) found = by_axes.insert(found, {axes, 0});
  found->bytes += bytes;
}

static bool is_of_backward(const StepEvent& event) {
  return event.kind != StepEvent::Kind::forward && event.kind != StepEvent::Kind::forward_done &&
         event.kind != StepEvent::Kind::end;
}

static bool needs(const StepEvent& event) {
  return event.kind == StepEvent::Kind::forward || event.kind == StepEvent::Kind::backward;
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

static void expect_gradients(std::vector<StepEvent>& events, Unit& unit) {
  if (!unit.has_gradients()) return;
  for (int bucket = 0; bucket < unit.gradients().buckets(); ++bucket) {
    events.push_back({StepEvent::Kind::gradients_done, &unit, bucket});
  }
}

Recording expected_step(const Units& units, bool training) {
  Unit* root = units.back().get();
  std::vector<StepEvent> events{{StepEvent::Kind::forward, root}};
  for (const auto& unit : units) {
    if (unit.get() == root) continue;
    events.push_back({StepEvent::Kind::forward, unit.get()});
    events.push_back({StepEvent::Kind::forward_done, unit.get()});
  }
  events.push_back({StepEvent::Kind::forward_done, root});
  if (training) {
    events.push_back({StepEvent::Kind::backward, root});
    for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
      if (unit->get() == root) continue;
      events.push_back({StepEvent::Kind::backward, unit->get()});
      expect_gradients(events, **unit);
      if ((*unit)->has_frozen()) events.push_back({StepEvent::Kind::backward_done, unit->get()});
    }
    expect_gradients(events, *root);
  }
  events.push_back({StepEvent::Kind::end, root});
  return {.events = std::move(events), .complete = true};
}

namespace {

/// Plays events through without doing anything: writes down what the conductor says.
class Player {
 public:
  Player(const Recording& recording, const Units& units)
      : recording_(recording),
        units_(units),
        conductor_(units, [this](const Action& action) { hear(action); }) {}

  void play(const StepKind& kind) {
    conductor_.begin(kind.training);
    conductor_.set_sync(kind.sync);
    for (const auto& unit : units_) {
      if (kind.updated) conductor_.update(*unit);
    }
    bool backward = false;
    for (size_t i = 0; i < recording_.events.size(); ++i) {
      if (is_of_backward(recording_.events[i]) && !std::exchange(backward, true)) {
        conductor_.begin_backward();
      }
      step(i);
    }
  }

  /// Forgets what was done, but not the buffers.
  void forget() {
    schedule_.actions.clear();
    schedule_.received = schedule_.copied = 0;
    schedule_.by_axes.clear();
  }

  Schedule schedule() { return std::move(schedule_); }

 private:
  using Kind = ScheduledAction::Kind;

  void step(size_t i) {
    const StepEvent& event = recording_.events[i];
    Unit& unit = *event.unit;
    switch (event.kind) {
      case StepEvent::Kind::forward:
        conductor_.forward(unit, recording_.ahead(i, unit.options().prefetch));
        break;
      case StepEvent::Kind::backward:
        conductor_.backward(unit, recording_.ahead(i, unit.options().prefetch));
        break;
      case StepEvent::Kind::forward_done:
        conductor_.forward_done(unit);
        break;
      case StepEvent::Kind::gradients_done:
        conductor_.gradients_done(unit, event.bucket);
        break;
      case StepEvent::Kind::gradients_again:
        conductor_.gradients_again(unit, event.bucket);
        conductor_.take_gradients(unit);
        break;
      case StepEvent::Kind::backward_done:
        conductor_.backward_done(unit);
        break;
      case StepEvent::Kind::end:
        conductor_.end();
        break;
    }
  }

  void hear(const Action& action) {
    const Unit& unit = *action.unit;
    const std::vector<Level>& levels = unit.levels();
    switch (action.kind) {
      case Action::Kind::gather:
        gather(action, levels[action.step]);
        break;
      case Action::Kind::wait:
        if (!levels.empty()) add(action, Kind::wait, buffer_of(unit, levels.size() - 1));
        break;
      case Action::Kind::compute:
        add(action, Kind::compute, -1);
        break;
      case Action::Kind::free:
        add(action, Kind::free, give(unit, action.step, levels[action.step].bytes()));
        break;
      case Action::Kind::take_gradients:
        if (!unit.gradients().is_direct()) take(unit, kGradients, unit.gradients().buffer_bytes());
        break;
      case Action::Kind::give_gradients:
        give(unit, kGradients, unit.gradients().buffer_bytes());
        break;
      case Action::Kind::settle:
        break;
      case Action::Kind::reduce:
        reduce(action);
        break;
      case Action::Kind::wait_reduced:
        add(action, Kind::wait_reduced, action.step ? -1 : buffer_of(unit, kGradients));
        break;
    }
  }

  void gather(const Action& action, const Level& level) {
    schedule_.copied += level.copied();
    ScheduledAction& added =
        add(action, Kind::gather, take(*action.unit, action.step, level.bytes()));
    move(added, level.group().axes, level.traffic());
  }

  void reduce(const Action& action) {
    const Gradients& gradients = action.unit->gradients();
    const Reduction& reduction = gradients.reductions()[action.step];
    schedule_.copied += gradients.copied(action.step);
    ScheduledAction& added = add(action, reduction.scatters ? Kind::scatter : Kind::all_reduce,
                                 action.step ? -1 : buffer_of(*action.unit, kGradients));
    move(added, reduction.group.axes, gradients.traffic(action.bucket, action.step));
  }

  ScheduledAction& add(const Action& action, Kind kind, int buffer) {
    std::string module = action.unit->name();
    const bool buckets = action.unit->gradients().buckets() > 1;
    if (buckets && kind >= Kind::scatter) module += concat("#", action.bucket);
    schedule_.actions.push_back({kind, action.backward, std::move(module), "", 0, buffer});
    return schedule_.actions.back();
  }

  void move(ScheduledAction& action, const std::string& axes, int64_t bytes) {
    action.axes = axes;
    action.bytes = bytes;
    schedule_.received += bytes;
    add_traffic(schedule_.by_axes, axes, bytes);
  }

  /// The gradients' buffer, beside those of the levels.
  static constexpr size_t kGradients = SIZE_MAX;

  int buffer_of(const Unit& unit, size_t which) const {
    auto found = held_.find({&unit, which});
    return found == held_.end() ? -1 : found->second;
  }

  int take(const Unit& unit, size_t which, size_t bytes) {
    if (const int number = buffer_of(unit, which); number >= 0) return number;
    auto& free = free_[bytes];
    int number = made_;
    if (free.empty()) {
      ++made_;
      schedule_.buffer_bytes += static_cast<int64_t>(bytes);
    } else {
      number = free.front();
      free.erase(free.begin());
    }
    return held_[{&unit, which}] = number;
  }

  int give(const Unit& unit, size_t which, size_t bytes) {
    const int number = buffer_of(unit, which);
    if (number < 0) return number;
    free_[bytes].push_back(number);
    held_.erase({&unit, which});
    return number;
  }

  const Recording& recording_;
  const Units& units_;
  Schedule schedule_;
  Conductor conductor_;
  std::map<std::pair<const Unit*, size_t>, int> held_;
  std::map<size_t, std::vector<int>> free_;
  int made_ = 0;
};

}  // namespace

Schedule compiled(const Recording& recording, const Units& units,
                  const std::vector<StepKind>& steps) {
  Player player(recording, units);
  // What is kept from one update to the next is there before a step without one.
  if (!steps[0].updated) {
    player.play({.training = steps[0].training});
    player.forget();
  }
  for (const StepKind& kind : steps) player.play(kind);
  return player.schedule();
}

std::string Schedule::text() const {
  static constexpr const char* kVerbs[] = {"gather",  "wait",       "compute",        "free",
                                           "scatter", "all-reduce", "wait for sum of"};
  std::ostringstream out;
  for (const ScheduledAction& action : actions) {
    const std::string& module = action.module;
    const bool of_root = module.empty() || module[0] == '#';
    out << (action.backward ? "backward  " : "forward   ") << kVerbs[static_cast<int>(action.kind)]
        << ' ' << (of_root ? "the root" : "") << module;
    if (!action.axes.empty()) out << " over " << action.axes;
    if (action.buffer >= 0) out << ", buffer " << action.buffer;
    if (action.bytes > 0) out << ", " << action.bytes << " bytes";
    out << '\n';
  }
  out << "buffers: " << buffer_bytes << " bytes; received: " << received << " bytes";
  for (const AxisTraffic& part : by_axes) {
    if (by_axes.size() > 1) out << ", over " << part.axes << ' ' << part.bytes;
  }
  out << '\n';
  return out.str();
}

}  // namespace weft::fsdp

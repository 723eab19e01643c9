// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/base/program_run.h"
#include "weft/error.h"

namespace weft {

using Act = ProgramAct;
using Fault = ProgramFault;

std::string_view name_of(ProgramFault fault) {
  constexpr std::string_view kNames[] = {
      "not acquired",   "used after release", "acquired twice", "not released", "released twice",
      "not waited for", "not started",        "started twice",  "used early",   "released early",
      "order",          "deadlock",           "memory",         "misplaced"};
  return kNames[static_cast<size_t>(fault)];
}

namespace {

using Defects = std::vector<ProgramDefect>;

/// Walks through the steps of one rank.
class ProgramWalk {
 public:
  ProgramWalk(const Program& program, int64_t budget, Defects& defects)
      : program_(program), budget_(budget), defects_(defects) {
    for (const ProgramSlot& slot : program.slots) {
      slots_.push_back({.is_held = slot.held_before});
    }
  }

  void walk() {
    const size_t before = defects_.size();
    for (at_ = 0; at_ < program_.steps.size(); ++at_) check_place(program_.steps[at_]);
    if (defects_.size() > before) return;
    for (at_ = 0; at_ < program_.steps.size(); ++at_) take(program_.steps[at_]);
    for (const auto& [work, step] : started_) {
      at_ = step;
      add(Fault::not_waited, words_of(program_.steps[step]), " is never waited for",
          ", expected a wait");
    }
    at_ = program_.steps.empty() ? 0 : program_.steps.size() - 1;
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (!slots_[i].is_held || program_.slots[i].kept_after) continue;
      add(Fault::not_released, program_.slots[i].name, " is never released",
          ", expected a release after its last use");
    }
    const int64_t most = budget_ == 0 ? 0 : program_.peak_bytes();
    if (most > budget_) {
      add(Fault::memory, "memory of slots is ", most, " bytes", ", expected at most ", budget_);
    }
  }

 private:
  struct Held {
    bool is_held = false, was_held = false;
    /// The work in progress that fills it, and that reads it.
    int fill = -1;
    std::set<int> reads = {};
  };

  /// Adds a defect whose sentence joins the parts; the last one states the expected value.
  template <class... Parts> void add(Fault fault, const Parts&... parts) {
    std::string text = concat(parts...);
    const size_t end = text.rfind(", expected ");
    text.insert(end, concat(" on rank ", program_.rank));
    defects_.push_back({fault, program_.rank, at_, std::move(text)});
  }

  void check_place(const ProgramStep& step) {
    const auto count = static_cast<int>(slots_.size());
    const bool needs_slot = step.act == Act::acquire || step.act == Act::release;
    std::vector<int> used = step.uses;
    if (needs_slot || step.slot != -1) used.push_back(step.slot);
    for (const int slot : used) {
      if (slot >= 0 && slot < count) continue;
      add(Fault::misplaced, "slot of ", words_of(step), " is ", slot, ", expected 0 to ",
          count - 1);
    }
    if (step.act == Act::wait && step.work < 0) {
      add(Fault::misplaced, "work of ", words_of(step), " is ", step.work,
          ", expected that of a started step");
    }
    if (is_message(step.act) && (step.peer < 0 || step.peer == program_.rank)) {
      add(Fault::misplaced, "other end of ", words_of(step), " is rank ", step.peer,
          ", expected another rank");
    }
    if (!is_collective(step.act) || step.axes.empty()) return;
    const bool is_known = std::ranges::any_of(
        program_.mesh, [&](const auto& axis) { return names_axis(step.axes, axis.first); });
    if (is_known) return;
    add(Fault::misplaced, "axes of ", words_of(step), " are ", in_quotes(step.axes),
        ", expected some of the mesh");
  }

  const std::string& name(int slot) const { return program_.slots[static_cast<size_t>(slot)].name; }

  void acquire(const ProgramStep& step) {
    Held& slot = slots_[static_cast<size_t>(step.slot)];
    if (slot.is_held) {
      add(Fault::acquired_twice, name(step.slot), " is acquired while it is held",
          ", expected a release before");
    }
    slot = {.is_held = true, .was_held = true};
  }

  void release(const ProgramStep& step) {
    Held& slot = slots_[static_cast<size_t>(step.slot)];
    if (!slot.is_held) {
      add(slot.was_held ? Fault::released_twice : Fault::not_acquired, name(step.slot),
          " is released while it is not held", ", expected one release for each acquisition");
    } else if (slot.fill >= 0 || !slot.reads.empty()) {
      const int work = slot.fill >= 0 ? slot.fill : *slot.reads.begin();
      add(Fault::released_early, name(step.slot), " is released before the wait for ",
          words_of(program_.steps[started_.at(work)]), ", expected it after");
    }
    slot = {.is_held = false, .was_held = true};
  }

  void use(const ProgramStep& step, int index, bool fills) {
    Held& slot = slots_[static_cast<size_t>(index)];
    if (!slot.is_held && slot.was_held) {
      add(Fault::used_after_release, words_of(step), " uses ", name(index), " after its release",
          ", expected it before");
    } else if (!slot.is_held) {
      const std::string& maker = program_.slots[static_cast<size_t>(index)].maker;
      add(Fault::not_acquired, words_of(step), " comes before ",
          maker.empty() ? concat("the acquisition of ", name(index)) : maker,
          ", expected it after");
    } else if (slot.fill >= 0 && slot.fill != step.work) {
      add(Fault::used_early, words_of(step), " uses ", name(index), " before the wait for ",
          words_of(program_.steps[started_.at(slot.fill)]), ", expected it after");
    }
    if (step.work < 0 || step.act == Act::wait) return;
    if (fills) slot.fill = step.work;
    if (!fills) slot.reads.insert(step.work);
  }

  void take(const ProgramStep& step) {
    if (step.act == Act::acquire) return acquire(step);
    if (step.act == Act::release) return release(step);
    const bool starts = step.work >= 0 && step.act != Act::wait;
    if (starts && !started_.emplace(step.work, at_).second) {
      add(Fault::started_twice, words_of(step), " is started while work ", step.work,
          " is in progress", ", expected a wait before");
    }
    // Others send what is in their slot.
    const bool fills = step.act == Act::gather || step.act == Act::exchange ||
                       step.act == Act::receive || step.act == Act::read;
    if (step.slot >= 0) use(step, step.slot, fills);
    for (const int slot : step.uses) use(step, slot, false);
    if (step.act != Act::wait) return;
    if (started_.erase(step.work) == 0) {
      add(Fault::not_started, words_of(step), " waits for work ", step.work,
          " that is not in progress", ", expected a step that starts it before");
    }
    for (Held& slot : slots_) {
      if (slot.fill == step.work) slot.fill = -1;
      slot.reads.erase(step.work);
    }
  }

  const Program& program_;
  const int64_t budget_;
  Defects& defects_;
  std::vector<Held> slots_;
  /// The steps that have been started, by the number of their work.
  std::map<int, size_t> started_;
  size_t at_ = 0;
};

/// Describes what all ranks of a collective have to agree on.
std::string meeting_words(const ProgramStep& step) {
  return concat(words_of(step), step.change.empty() ? "" : concat(" ", step.change));
}

/// Compares the order of the collectives of each group of ranks with that of its first rank.
void compare_orders(std::span<const Program> ranks, Defects& defects) {
  struct Order {
    size_t rank;
    std::vector<std::pair<size_t, std::string>> steps;
  };
  std::map<std::string, Order> firsts;
  for (size_t r = 0; r < ranks.size(); ++r) {
    std::map<std::string, Order> own;
    for (size_t i = 0; i < ranks[r].steps.size(); ++i) {
      const ProgramStep& step = ranks[r].steps[i];
      if (!is_collective(step.act)) continue;
      Order& order = own[group_name(ranks[r], step.axes)];
      order.rank = r;
      order.steps.emplace_back(i, meeting_words(step));
    }
    for (auto& [group, order] : own) {
      const auto [found, is_first] = firsts.emplace(group, order);
      if (is_first) continue;
      const auto& expected = found->second.steps;
      for (size_t k = 0; k < std::max(expected.size(), order.steps.size()); ++k) {
        const bool has = k < order.steps.size(), had = k < expected.size();
        if (has && had && order.steps[k].second == expected[k].second) continue;
        const size_t step = has ? order.steps[k].first : ranks[r].steps.size();
        defects.push_back(
            {Fault::order, ranks[r].rank, step,
             concat("collective ", k, " over ", group.substr(0, group.find(',')), " on rank ",
                    ranks[r].rank, " is ", has ? order.steps[k].second : "missing", ", expected ",
                    had ? expected[k].second : "none", " as on rank ",
                    ranks[found->second.rank].rank)});
        break;
      }
    }
  }
}

/// Lets the ranks meet, and names those that cannot go on.
void let_meet(std::span<const Program> ranks, Defects& defects) {
  const ProgramRun run(ranks);
  for (size_t r = 0; r < ranks.size(); ++r) {
    const ProgramStep* step = run.next(r);
    if (!step) continue;
    const size_t other = run.awaited(r);
    const ProgramStep* peer = run.next(other);
    defects.push_back(
        {Fault::deadlock, ranks[r].rank, run.spans()[r].size(),
         concat("rank ", ranks[r].rank, " waits at the ", words_of(*step), " for rank ",
                ranks[other].rank, ", which waits at the ", peer ? words_of(*peer) : "end",
                ", expected both at one ", is_message(step->act) ? "message" : "collective")});
  }
}

}  // namespace

std::vector<ProgramDefect> defects_of(std::span<const Program> ranks, int64_t budget) {
  Defects defects;
  for (const Program& program : ranks) ProgramWalk(program, budget, defects).walk();
  // Ranks that lack a step wait too; the missing step is the cause.
  if (defects.empty()) compare_orders(ranks, defects);
  if (defects.empty()) let_meet(ranks, defects);
  return defects;
}

void check(const char* what, std::span<const Program> ranks, int64_t budget) {
  const std::vector<ProgramDefect> defects = defects_of(ranks, budget);
  if (defects.empty()) return;
  fail(what, ": ", name_of(defects[0].fault), ": step ", defects[0].step, ": ", defects[0].text);
}

}  // namespace weft

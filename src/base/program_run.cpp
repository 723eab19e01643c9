// SPDX-License-Identifier: Apache-2.0
#include "src/base/program_run.h"

#include <algorithm>
#include <utility>

#include "weft/error.h"

namespace weft {

using Act = ProgramAct;

bool names_axis(const std::string& axes, const std::string& axis) {
  if (axes == axis) return true;  // names may have " by " themselves
  const std::string all = '+' + axes.substr(0, axes.find(" by ")) + '+';
  return all.find('+' + axis + '+') != std::string::npos;
}

std::string group_name(const Program& program, const std::string& axes) {
  std::string name = axes;
  int left = program.rank;
  for (size_t i = program.mesh.size(); i-- > 0;) {
    const auto& [axis, size] = program.mesh[i];
    if (!names_axis(axes, axis)) name += concat(", ", axis, '=', left % size);
    left /= size;
  }
  return name;
}

ProgramRun::ProgramRun(std::span<const Program> ranks)
    : ranks_(ranks),
      spans_(ranks.size()),
      now_(ranks.size(), 0),
      free_(ranks.size()),
      works_(ranks.size()),
      at_(ranks.size()) {
  is_timed_ = std::ranges::all_of(
      ranks, [](const Program& one) { return one.is_timed() && one.seconds() > 0; });
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (const ProgramStep& step : ranks[r].steps) {
      if (is_collective(step.act)) groups_[group_name(ranks[r], step.axes)].reached[r] = 0;
    }
  }
  for (bool goes_on = true; std::exchange(goes_on, false);) {
    for (size_t r = 0; r < ranks.size(); ++r) {
      while (next(r) && advance(r)) goes_on = true;
    }
  }
}

const ProgramStep* ProgramRun::next(size_t rank) const {
  const std::vector<ProgramStep>& steps = ranks_[rank].steps;
  return spans_[rank].size() < steps.size() ? &steps[spans_[rank].size()] : nullptr;
}

size_t ProgramRun::index_of(int rank) const {
  const auto found = std::ranges::find(ranks_, rank, &Program::rank);
  return static_cast<size_t>(found - ranks_.begin());
}

double ProgramRun::seconds_of(const ProgramStep& step) const {
  if (is_timed_) return step.seconds;
  const bool is_short = step.act <= Act::view || step.act == Act::wait || step.verb.empty();
  return is_short ? 0 : 1;
}

double ProgramRun::begin_of(size_t rank, const ProgramStep& step) {
  return std::max(now_[rank], free_[rank][step.stream]);
}

void ProgramRun::add_span(size_t rank, const ProgramStep& step, double begin, double end) {
  spans_[rank].push_back({begin, end});
  free_[rank][step.stream] = std::max(free_[rank][step.stream], end);
  if (step.work < 0 || step.act == Act::wait) now_[rank] = std::max(now_[rank], end);
}

ProgramRun::Reached ProgramRun::reach(size_t rank, const ProgramStep& step) {
  Group& group = groups_.at(group_name(ranks_[rank], step.axes));
  const size_t number = group.reached[rank]++;
  if (group.times.size() <= number) group.times.resize(number + 1);
  const double begin = begin_of(rank, step);
  group.times[number].push_back(begin);
  return {&group, number, seconds_of(step), begin, spans_[rank].size()};
}

bool ProgramRun::is_complete(const Reached& one) {
  return !one.group || one.group->times[one.number].size() == one.group->reached.size();
}

double ProgramRun::end_of(const Reached& one) {
  const double last = one.group ? std::ranges::max(one.group->times[one.number]) : one.begin;
  return last + one.seconds;
}

/// Messages are equal at both ends; both ranks go on.
bool ProgramRun::advance_message(size_t rank, const ProgramStep& step) {
  const double begin = begin_of(rank, step);
  const size_t other = index_of(step.peer);
  if (other == ranks_.size()) return add_span(rank, step, begin, begin + seconds_of(step)), true;
  const ProgramStep* peer = next(other);
  const bool meets = peer && is_message(peer->act) && peer->act != step.act &&
                     peer->peer == ranks_[rank].rank && peer->change == step.change;
  if (!meets) return false;
  const double both = std::max(begin, begin_of(other, *peer));
  const double end = both + std::max(seconds_of(step), seconds_of(*peer));
  const ProgramStep there = *peer;
  add_span(rank, step, both, end);
  add_span(other, there, both, end);
  return true;
}

bool ProgramRun::advance(size_t rank) {
  const ProgramStep& step = *next(rank);
  if (is_message(step.act)) return advance_message(rank, step);
  if (step.act == Act::wait) {
    const auto found = works_[rank].find(step.work);
    const Reached work = found == works_[rank].end() ? Reached{} : found->second;
    if (!is_complete(work)) return false;
    const double end = std::max(now_[rank], found == works_[rank].end() ? 0 : end_of(work));
    if (work.group) spans_[rank][work.step].end = end_of(work);
    add_span(rank, step, now_[rank], end);
    return true;
  }
  const double begin = begin_of(rank, step), seconds = seconds_of(step);
  if (step.work >= 0) {
    Reached work{nullptr, 0, seconds, begin, spans_[rank].size()};
    if (is_collective(step.act)) work = reach(rank, step);
    works_[rank][step.work] = work;
    add_span(rank, step, begin, begin + seconds);
    return true;
  }
  if (!is_collective(step.act)) return add_span(rank, step, begin, begin + seconds), true;
  if (!at_[rank].group) at_[rank] = reach(rank, step);
  if (!is_complete(at_[rank])) return false;
  add_span(rank, step, begin, end_of(std::exchange(at_[rank], {})));
  return true;
}

size_t ProgramRun::awaited(size_t rank) const {
  const ProgramStep& step = *next(rank);
  if (is_message(step.act)) return index_of(step.peer);
  const Reached& one = step.act == Act::wait ? works_[rank].at(step.work) : at_[rank];
  for (const auto& [member, reached] : one.group->reached) {
    if (reached <= one.number) return member;
  }
  return rank;
}

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "weft/program.h"

namespace weft {

inline bool is_message(ProgramAct act) {
  return act == ProgramAct::send || act == ProgramAct::receive;
}
inline bool is_collective(ProgramAct act) {
  return act >= ProgramAct::gather && act <= ProgramAct::exchange;
}

/// Runs the programs of ranks on paper. A collective ends when all ranks that differ along its axes
/// have reached it, a message when both ends have: sends and receives do not start before.
class ProgramRun {
 public:
  explicit ProgramRun(std::span<const Program> ranks);

  /// The time of a step, counted in steps or, where times are known, in seconds.
  struct Span {
    double begin = 0, end = 0;
  };
  /// By rank and step; a rank that cannot go on has fewer.
  const std::vector<std::vector<Span>>& spans() const { return spans_; }
  /// The next step of a rank; null at the end.
  const ProgramStep* next(size_t rank) const;
  /// The rank that keeps another one from its next step.
  size_t awaited(size_t rank) const;

 private:
  /// The ranks that share collectives, the number that each has reached, and when.
  struct Group {
    std::map<size_t, size_t> reached;
    std::vector<std::vector<double>> times;
  };
  /// A collective that a rank has reached.
  struct Reached {
    Group* group = nullptr;
    size_t number = 0;
    double seconds = 0, begin = 0;
    size_t step = 0;
  };
  Reached reach(size_t rank, const ProgramStep& step);
  static bool is_complete(const Reached& one);
  static double end_of(const Reached& one);
  bool advance(size_t rank);
  bool advance_message(size_t rank, const ProgramStep& step);
  void add_span(size_t rank, const ProgramStep& step, double begin, double end);
  size_t index_of(int rank) const;
  double seconds_of(const ProgramStep& step) const;
  double begin_of(size_t rank, const ProgramStep& step);

  std::span<const Program> ranks_;
  std::map<std::string, Group> groups_;
  std::vector<std::vector<Span>> spans_;
  /// By rank: the time that its steps have reached, and that of each stream.
  std::vector<double> now_;
  std::vector<std::map<int, double>> free_;
  /// By rank: work that has been started, and the collective at which the rank waits.
  std::vector<std::map<int, Reached>> works_;
  std::vector<Reached> at_;
  bool is_timed_ = false;
};

/// True when "dp+tp" or "dp by 4", a part of an axis, names the axis.
bool names_axis(const std::string& axes, const std::string& axis);
/// Names the ranks with which a rank communicates over `axes`: equal for all of them.
std::string group_name(const Program& program, const std::string& axes);

}  // namespace weft

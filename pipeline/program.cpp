// SPDX-License-Identifier: Apache-2.0
#include "weft/pipeline_program.h"

#include <algorithm>
#include <map>
#include <ostream>
#include <tuple>
#include <utility>

#include "pipeline/timeline.h"
#include "weft/error.h"

namespace weft {

using Act = PipelineAct;

std::string_view name_of(PipelineAct act) {
  constexpr std::string_view kNames[] = {
      "forward",         "backward",         "backward_input",
      "backward_weight", "send_activation",  "receive_activation",
      "send_gradient",   "receive_gradient", "reduce"};
  return kNames[static_cast<size_t>(act)];
}

std::ostream& operator<<(std::ostream& out, const PipelineStep& step) {
  constexpr std::string_view kWords[] = {"forward",
                                         "backward",
                                         "backward of the inputs",
                                         "backward of the weights",
                                         "send of the activation",
                                         "receive of the activation",
                                         "send of the gradient",
                                         "receive of the gradient",
                                         "reduction"};
  out << kWords[static_cast<size_t>(step.act)];
  if (step.act != Act::reduce) out << " of microbatch " << step.microbatch;
  return out << " by stage " << step.stage;
}

std::ostream& operator<<(std::ostream& out, const PipelineProgram& program) {
  constexpr std::string_view kLetters[] = {"F", "B", "I", "W", ">F", "<F", ">B", "<B", "R"};
  const bool has_chunks = program.stages() > program.ranks();
  out << program.name << ": " << program.stages() << " stages on " << program.ranks() << " ranks, "
      << program.microbatches << " microbatches\n";
  for (int r = 0; r < program.ranks(); ++r) {
    out << "rank " << r << ':';
    for (const PipelineStep& step : program.steps[static_cast<size_t>(r)]) {
      out << ' ' << kLetters[static_cast<size_t>(step.act)];
      if (step.act != Act::reduce) out << step.microbatch;
      if (has_chunks) out << '.' << step.stage;
    }
    out << '\n';
  }
  return out;
}

namespace {

/// A step and its place in the order in which all ranks meet.
struct PlacedStep {
  double time;
  /// Messages come before reductions and computing steps of the same time.
  int kind;
  int number;
  PipelineStep step;
  bool operator<(const PlacedStep& other) const {
    return std::tie(time, kind, number) < std::tie(other.time, other.kind, other.number);
  }
};

/// Places the messages of a table at the times at which their senders have made them.
class MessagePlacement {
 public:
  MessagePlacement(const PipelineProgram& program,
                   const std::vector<std::vector<PipelineSpan>>& spans)
      : program_(program), placed_(program.steps.size()) {
    std::vector<double> last(program.rank_of_stage.size(), 0);
    for (size_t r = 0; r < spans.size(); ++r) {
      for (const PipelineSpan& span : spans[r]) {
        placed_[r].push_back({span.begin, 2, 0, span.step});
        add_messages(span);
        double& end = last[static_cast<size_t>(span.step.stage)];
        if (span.step.act != Act::forward) end = std::max(end, span.end);
      }
    }
    for (int stage = 0; stage < program.stages(); ++stage) {
      placed_[rank_of(stage)].push_back(
          {last[static_cast<size_t>(stage)], 1, 0, {Act::reduce, stage, -1}});
    }
  }

  std::vector<std::vector<PipelineStep>> steps() {
    std::vector<std::vector<PipelineStep>> steps;
    for (auto& rank : placed_) {
      std::ranges::stable_sort(
          rank, {}, [](const PlacedStep& p) { return std::tuple(p.time, p.kind, p.number); });
      auto& own = steps.emplace_back();
      for (const PlacedStep& placed : rank) own.push_back(placed.step);
    }
    return steps;
  }

 private:
  size_t rank_of(int stage) const {
    return static_cast<size_t>(program_.rank_of_stage[static_cast<size_t>(stage)]);
  }

  void add_messages(const PipelineSpan& span) {
    const auto [act, stage, microbatch] = span.step;
    const bool forward = act == Act::forward;
    if (!forward && !makes_gradient(act)) return;
    const int to = forward ? stage + 1 : stage - 1;
    if (to < 0 || to == program_.stages() || rank_of(to) == rank_of(stage)) return;
    // One number for both ends, the same in the lists of both ranks.
    const int number = (forward ? 0 : program_.stages() * program_.microbatches) +
                       stage * program_.microbatches + microbatch;
    const Act sends = forward ? Act::send_activation : Act::send_gradient;
    const Act receives = forward ? Act::receive_activation : Act::receive_gradient;
    placed_[rank_of(stage)].push_back({span.end, 0, number, {sends, stage, microbatch}});
    placed_[rank_of(to)].push_back({span.end, 0, number, {receives, to, microbatch}});
  }

  const PipelineProgram& program_;
  std::vector<std::vector<PlacedStep>> placed_;
};

}  // namespace

PipelineProgram with_messages(std::string name, int microbatches, std::vector<int> rank_of_stage,
                              const std::vector<std::vector<PipelineStep>>& table) {
  PipelineProgram program{std::move(name), microbatches, std::move(rank_of_stage), table};
  // Everything but messages and reductions, which are made here.
  for (const PipelineDefect& defect : defects_of(program)) {
    if (defect.fault != PipelineFault::misplaced) continue;
    fail("pipeline: ", name_of(defect.fault), ": ", defect.text);
  }
  const auto spans = spans_of(program, {});
  for (size_t r = 0; r < table.size(); ++r) {
    if (spans[r].size() == table[r].size()) continue;
    const PipelineStep& stuck = table[r][spans[r].size()];
    if (!computes(stuck.act)) {
      fail("with_messages: step is ", stuck, ", expected computing steps alone");
    }
    fail("pipeline: ", name_of(PipelineFault::deadlock), ": rank ", r, " waits at the ", stuck,
         " for a step that never runs");
  }
  program.steps = MessagePlacement(program, spans).steps();
  return program;
}

}  // namespace weft

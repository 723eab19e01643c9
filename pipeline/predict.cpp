// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "pipeline/timeline.h"
#include "weft/error.h"

namespace weft {

using Act = PipelineAct;

namespace {

/// Runs the computing steps of all ranks on paper.
class Simulation {
 public:
  Simulation(const PipelineProgram& program, const PipelineTimes& times)
      : program_(program),
        times_(times),
        forwards_(program.stages(), program.microbatches, {}),
        gradients_(program.stages(), program.microbatches, {}),
        spans_(program.steps.size()),
        free_(program.steps.size(), 0) {
    std::vector<std::vector<PipelineStep>> left(program.steps.size());
    for (size_t r = 0; r < left.size(); ++r) {
      for (const PipelineStep& step : program.steps[r]) {
        if (computes(step.act)) left[r].push_back(step);
      }
    }
    for (bool goes_on = true; std::exchange(goes_on, false);) {
      for (size_t r = 0; r < left.size(); ++r) {
        while (spans_[r].size() < left[r].size() && run(r, left[r][spans_[r].size()])) {
          goes_on = true;
        }
      }
    }
  }

  std::vector<std::vector<PipelineSpan>> spans() && { return std::move(spans_); }

 private:
  using End = std::optional<double>;

  int rank_of(int stage) const { return program_.rank_of_stage[static_cast<size_t>(stage)]; }

  /// When a result of `from` can be read by the rank of `stage`.
  End arrival(const End& end, int from, int stage) const {
    if (!end || rank_of(from) == rank_of(stage)) return end;
    return *end + times_.message;
  }

  /// When the step's operands are there; empty while it is unknown.
  End ready(const PipelineStep& step) {
    const auto [act, stage, microbatch] = step;
    if (act == Act::backward_weight) return gradients_.at(step);
    if (act == Act::forward) {
      if (stage == 0) return 0;
      return arrival(forwards_.at(stage - 1, microbatch), stage - 1, stage);
    }
    const End own = forwards_.at(step);
    if (!own || stage + 1 == program_.stages()) return own;
    const End next = arrival(gradients_.at(stage + 1, microbatch), stage + 1, stage);
    return next ? End(std::max(*own, *next)) : End();
  }

  double seconds(const PipelineStep& step) const {
    const double each = times_.stages.empty() ? 1 : times_.stages[static_cast<size_t>(step.stage)];
    switch (step.act) {
      case Act::forward: return each * times_.forward;
      case Act::backward: return each * (times_.backward_input + times_.backward_weight);
      case Act::backward_input: return each * times_.backward_input;
      default: return each * times_.backward_weight;
    }
  }

  bool run(size_t rank, const PipelineStep& step) {
    const End at = ready(step);
    if (!at) return false;
    const double begin = std::max(*at, free_[rank]), end = begin + seconds(step);
    free_[rank] = end;
    spans_[rank].push_back({step, begin, end});
    if (step.act == Act::forward) forwards_.at(step) = end;
    if (makes_gradient(step.act)) gradients_.at(step) = end;
    return true;
  }

  const PipelineProgram& program_;
  const PipelineTimes& times_;
  ByStage<End> forwards_, gradients_;
  std::vector<std::vector<PipelineSpan>> spans_;
  std::vector<double> free_;
};

}  // namespace

std::vector<std::vector<PipelineSpan>> spans_of(const PipelineProgram& program,
                                                const PipelineTimes& times) {
  return Simulation(program, times).spans();
}

PipelinePrediction predict(const PipelineProgram& program, const PipelineTimes& times) {
  check(program);
  if (!times.stages.empty() && static_cast<int>(times.stages.size()) != program.stages()) {
    fail("predict: number of times of stages is ", times.stages.size(), ", expected ",
         program.stages(), ", or none");
  }
  PipelinePrediction made;
  made.spans = spans_of(program, times);
  double busy = 0;
  for (const auto& spans : made.spans) {
    int held = 0, most = 0;
    for (const PipelineSpan& span : spans) {
      busy += span.end - span.begin;
      made.seconds = std::max(made.seconds, span.end);
      if (span.step.act == Act::forward) most = std::max(most, ++held);
      if (releases(span.step.act)) --held;
    }
    made.held.push_back(most);
  }
  const double all = made.seconds * program.ranks();
  made.bubble = all > 0 ? 1 - busy / all : 0;
  return made;
}

}  // namespace weft

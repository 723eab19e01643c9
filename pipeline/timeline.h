// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "weft/pipeline_program.h"

namespace weft {

inline bool computes(PipelineAct act) { return act <= PipelineAct::backward_weight; }
inline bool sends(PipelineAct act) {
  return act == PipelineAct::send_activation || act == PipelineAct::send_gradient;
}
inline bool receives(PipelineAct act) {
  return act == PipelineAct::receive_activation || act == PipelineAct::receive_gradient;
}
/// Returns whether the step leaves the gradient of the stage's input.
inline bool makes_gradient(PipelineAct act) {
  return act == PipelineAct::backward || act == PipelineAct::backward_input;
}
/// Returns whether the step is the last that reads the activations of its microbatch.
inline bool releases(PipelineAct act) {
  return act == PipelineAct::backward || act == PipelineAct::backward_weight;
}
/// The stage at the other end of a message.
inline int other_stage(const PipelineStep& step) {
  const bool next =
      step.act == PipelineAct::send_activation || step.act == PipelineAct::receive_gradient;
  return step.stage + (next ? 1 : -1);
}

/// Values by stage and microbatch.
template <class T> class ByStage {
 public:
  ByStage(int stages, int microbatches, T value)
      : microbatches_(microbatches),
        values_(static_cast<size_t>(stages) * static_cast<size_t>(microbatches), value) {}
  T& at(int stage, int microbatch) {
    return values_[static_cast<size_t>(stage) * static_cast<size_t>(microbatches_) +
                   static_cast<size_t>(microbatch)];
  }
  T& at(const PipelineStep& step) { return at(step.stage, step.microbatch); }

 private:
  int microbatches_;
  std::vector<T> values_;
};

/// When the computing steps of each rank run. Ranks that cannot go on have fewer spans than steps.
std::vector<std::vector<PipelineSpan>> spans_of(const PipelineProgram& program,
                                                const PipelineTimes& times);

}  // namespace weft

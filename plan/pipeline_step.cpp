// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include "weft/step_cost.h"

namespace weft {

/// Returns what a rank receives from its neighbours in a step.
static AxisCost messages_of(const PipelineProgram& program, int position,
                            const std::vector<StageCost>& stages, const std::string& axis,
                            bool crosses_hosts) {
  AxisCost cost{.axes = axis, .crosses_hosts = crosses_hosts, .of = "activations"};
  for (const PipelineStep& step : program.steps[static_cast<size_t>(position)]) {
    const bool is_activation = step.act == PipelineAct::receive_activation;
    if (!is_activation && step.act != PipelineAct::receive_gradient) continue;
    cost.bytes += stages[static_cast<size_t>(step.stage - (is_activation ? 1 : 0))].output;
    ++cost.collectives;
  }
  return cost;
}

static void add_seconds(StepSeconds& sum, const StepSeconds& stage) {
  sum.compute += stage.compute, sum.communication += stage.communication;
  sum.disk += stage.disk, sum.hidden_by_parts += stage.hidden_by_parts;
  sum.tokens += stage.tokens, sum.tokens_exposed += stage.tokens_exposed;
}

PipelineStepCost pipeline_step_cost(const PipelineProgram& program,
                                    const std::vector<StageCost>& stages, PipelineTimes times,
                                    const Machine& machine, const std::string& axis,
                                    bool crosses_hosts) {
  const double link = crosses_hosts ? machine.network_bytes : machine.host_bytes;
  const double units = times.forward + times.backward_input + times.backward_weight;
  PipelineMemory memory;
  int64_t longest = 0;
  std::vector<StepSeconds> seconds;
  for (const StageCost& stage : stages) {
    seconds.push_back(step_seconds(stage.cost, machine));
    times.stages.push_back(seconds.back().total / program.microbatches / units);
    memory.activation_bytes.push_back(stage.cost.memory[static_cast<size_t>(Purpose::activations)]);
    memory.output_bytes.push_back(stage.output);
    longest = std::max(longest, stage.output);
  }
  times.message = static_cast<double>(longest) / link + machine.latency;
  const PipelinePrediction prediction = predict(program, times);
  const std::vector<int64_t> held = held_bytes(program, memory);
  PipelineStepCost made{.costs = std::vector<StepCost>(held.size()),
                        .seconds = std::vector<StepSeconds>(held.size()),
                        .bubble = prediction.bubble};
  for (size_t s = 0; s < stages.size(); ++s) {
    const auto at = static_cast<size_t>(program.rank_of_stage[s]);
    made.costs[at].add_stage(stages[s].cost);
    add_seconds(made.seconds[at], seconds[s]);
  }
  for (size_t position = 0; position < held.size(); ++position) {
    StepCost& cost = made.costs[position];
    cost.memory[static_cast<size_t>(Purpose::activations)] = held[position];
    cost.traffic.push_back(
        messages_of(program, static_cast<int>(position), stages, axis, crosses_hosts));
    const AxisCost& messages = cost.traffic.back();
    StepSeconds& own = made.seconds[position];
    own.communication += static_cast<double>(messages.bytes) / link +
                         static_cast<double>(messages.collectives) * machine.latency;
    own.total = prediction.seconds;
  }
  return made;
}

}  // namespace weft

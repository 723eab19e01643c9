// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/timeline.h"
#include "weft/error.h"
#include "weft/pipeline_program.h"

namespace weft {

using Act = PipelineAct;
using Fault = PipelineFault;

std::string_view name_of(PipelineFault fault) {
  constexpr std::string_view kNames[] = {"misplaced",      "missing",  "repeated",   "out of order",
                                         "gradient scale", "deadlock", "unreleased", "memory"};
  return kNames[static_cast<size_t>(fault)];
}

/// The most bytes that a rank holds.
static int64_t held_by(const PipelineProgram& program, const PipelineMemory& memory, int rank) {
  const auto rank_of = [&](int stage) { return program.rank_of_stage[static_cast<size_t>(stage)]; };
  const auto of = [](const std::vector<int64_t>& bytes, int stage) {
    return bytes.empty() ? 0 : bytes[static_cast<size_t>(stage)];
  };
  // The bytes that come from or go to another rank over the border behind `stage`.
  const auto message = [&](int stage) {
    const bool travels =
        stage >= 0 && stage + 1 < program.stages() && rank_of(stage) != rank_of(stage + 1);
    return travels ? of(memory.output_bytes, stage) : 0;
  };
  int64_t bytes = 0, most = 0;
  for (const auto& [act, stage, microbatch] : program.steps[static_cast<size_t>(rank)]) {
    const int64_t own = of(memory.activation_bytes, stage);
    const int64_t input = message(stage - 1), output = message(stage);
    int64_t added = 0, freed = 0;
    switch (act) {
      case Act::receive_activation: added = input; break;
      // The activations contain the input.
      case Act::forward: added = own - input; break;
      case Act::receive_gradient: added = output; break;
      case Act::backward: added = input, freed = output + own; break;
      case Act::backward_input: added = input, freed = output; break;
      case Act::backward_weight: freed = own; break;
      case Act::send_gradient: freed = input; break;
      default: break;
    }
    most = std::max(most, bytes += added);
    bytes -= freed;
  }
  return most;
}

namespace {

constexpr int kActs = 9;

/// Looks for the defects of one program.
class PipelineCheck {
 public:
  PipelineCheck(const PipelineProgram& program, const PipelineMemory& memory)
      : program_(program), memory_(memory) {}

  std::vector<PipelineDefect> defects() && {
    check_places();
    // The checks below look stages and microbatches up.
    if (!defects_.empty()) return std::move(defects_);
    count();
    for (int r = 0; r < program_.ranks(); ++r) walk(r);
    // Ranks that lack a step wait too; the missing step is the cause.
    if (defects_.empty()) meet();
    return std::move(defects_);
  }

 private:
  template <class... Parts> void add(Fault fault, int rank, const Parts&... parts) {
    defects_.push_back({fault, rank, concat(parts...)});
  }
  int rank_of(int stage) const { return program_.rank_of_stage[static_cast<size_t>(stage)]; }
  const std::vector<PipelineStep>& steps(int rank) const {
    return program_.steps[static_cast<size_t>(rank)];
  }
  bool is_stage(int stage) const { return stage >= 0 && stage < program_.stages(); }

  void check_places() {
    if (program_.microbatches < 1) {
      add(Fault::misplaced, 0, "number of microbatches is ", program_.microbatches,
          ", expected at least 1");
    }
    if (program_.stages() == 0) {
      add(Fault::misplaced, 0, "number of stages is 0, expected at least 1");
    }
    for (int stage = 0; stage < program_.stages(); ++stage) {
      const int rank = rank_of(stage);
      if (rank >= 0 && rank < program_.ranks()) continue;
      add(Fault::misplaced, 0, "rank of stage ", stage, " is ", rank, ", expected 0 to ",
          program_.ranks() - 1);
    }
    for (int r = 0; r < program_.ranks(); ++r) {
      if (std::ranges::find(program_.rank_of_stage, r) != program_.rank_of_stage.end()) continue;
      add(Fault::misplaced, r, "number of stages of rank ", r, " is 0, expected at least 1");
    }
    for (int r = 0; r < program_.ranks(); ++r) {
      for (const PipelineStep& step : steps(r)) check_place(r, step);
    }
  }

  void check_place(int rank, const PipelineStep& step) {
    if (!is_stage(step.stage)) {
      return add(Fault::misplaced, rank, "stage of the ", step, " is ", step.stage,
                 ", expected 0 to ", program_.stages() - 1);
    }
    const bool has_none = step.act == Act::reduce;
    if (has_none ? step.microbatch != -1
                 : step.microbatch < 0 || step.microbatch >= program_.microbatches) {
      return add(Fault::misplaced, rank, "microbatch of the ", step, " is ", step.microbatch,
                 ", expected ", has_none ? -1 : 0, " to ",
                 has_none ? -1 : program_.microbatches - 1);
    }
    if (rank_of(step.stage) != rank) {
      return add(Fault::misplaced, rank, "rank of the ", step, " is ", rank, ", expected ",
                 rank_of(step.stage), ", which holds the stage");
    }
    if (!sends(step.act) && !receives(step.act)) return;
    const int other = other_stage(step);
    if (is_stage(other) && rank_of(other) != rank) return;
    add(Fault::misplaced, rank, "other end of the ", step, " is ",
        is_stage(other) ? "the same rank" : "no stage", ", expected a stage of another rank");
  }

  /// How often each step occurs.
  void count() {
    ByStage<std::array<int, kActs>> counts(program_.stages(), program_.microbatches, {});
    std::vector<int> reductions(program_.rank_of_stage.size(), 0);
    for (const auto& own : program_.steps) {
      for (const PipelineStep& step : own) {
        step.act == Act::reduce ? ++reductions[static_cast<size_t>(step.stage)]
                                : ++counts.at(step)[static_cast<size_t>(step.act)];
      }
    }
    for (int s = 0; s < program_.stages(); ++s) {
      expect_once({Act::reduce, s, -1}, reductions[static_cast<size_t>(s)]);
      for (int m = 0; m < program_.microbatches; ++m) count(s, m, counts.at(s, m));
    }
  }

  void count(int stage, int microbatch, const std::array<int, kActs>& counts) {
    const auto of = [&](Act act) { return counts[static_cast<size_t>(act)]; };
    const auto once = [&](Act act) { expect_once({act, stage, microbatch}, of(act)); };
    once(Act::forward);
    const int weights = of(Act::backward) + of(Act::backward_weight);
    if (weights != 1) {
      add(Fault::gradient_scale, rank_of(stage), "microbatch ", microbatch, " counts ", weights,
          " times in the gradients of stage ", stage, ", expected once; ",
          weights == 0 ? "a backward is missing" : "a backward is repeated");
    }
    if (of(Act::backward) == 0) once(Act::backward_input);
    if (of(Act::backward) > 0 && of(Act::backward_input) > 0) {
      add(Fault::repeated, rank_of(stage), PipelineStep{Act::backward_input, stage, microbatch},
          " follows a whole backward, expected one of both");
    }
    const auto has_messages = [&](int other) {
      return is_stage(other) && rank_of(other) != rank_of(stage);
    };
    if (has_messages(stage + 1)) once(Act::send_activation), once(Act::receive_gradient);
    if (has_messages(stage - 1)) once(Act::receive_activation), once(Act::send_gradient);
  }

  void expect_once(const PipelineStep& step, int times) {
    if (times == 1) return;
    const int rank = rank_of(step.stage);
    add(times == 0 ? Fault::missing : Fault::repeated, rank, step, " runs ", times,
        " times on rank ", rank, ", expected once");
  }

  /// The parts of one microbatch in one stage that a rank holds.
  struct Held {
    bool input = false, output = false, gradient = false, input_gradient = false, released = false;
  };

  /// Runs the steps of a rank on paper: each must find what it reads.
  void walk(int rank) {
    ByStage<Held> held(program_.stages(), program_.microbatches, {});
    std::vector<int> backwards(program_.rank_of_stage.size(), 0);
    for (const PipelineStep& step : steps(rank)) {
      if (step.act == Act::reduce) {
        const int done = backwards[static_cast<size_t>(step.stage)];
        if (done < program_.microbatches) {
          add(Fault::out_of_order, rank, step, " comes after ", done, " of ", program_.microbatches,
              " backwards on rank ", rank, ", expected it after all");
        }
        continue;
      }
      const std::string lacks = take(held, rank, step);
      if (!lacks.empty()) {
        add(Fault::out_of_order, rank, step, " comes before ", lacks, " on rank ", rank,
            ", expected it after");
      }
      if (releases(step.act)) ++backwards[static_cast<size_t>(step.stage)];
    }
    for (int s = 0; s < program_.stages(); ++s) {
      for (int m = 0; m < program_.microbatches; ++m) {
        const Held& one = held.at(s, m);
        if (!one.output || one.released) continue;
        add(Fault::unreleased, rank, "activation of microbatch ", m, " in stage ", s,
            " is never released on rank ", rank, ", expected a backward that reads it last");
      }
    }
    const int64_t most = memory_.budget == 0 ? 0 : held_by(program_, memory_, rank);
    if (most <= memory_.budget) return;
    add(Fault::memory, rank, "activations of rank ", rank, " take ", most,
        " bytes, expected at most ", memory_.budget);
  }

  /// Notes what a step makes; returns what it lacks.
  std::string take(ByStage<Held>& held, int rank, const PipelineStep& step) {
    Held& own = held.at(step);
    const auto local = [&](int stage) { return is_stage(stage) && rank_of(stage) == rank; };
    const auto lacks = [&](bool is_there, Act act, int stage) {
      return is_there ? std::string() : concat("the ", PipelineStep{act, stage, step.microbatch});
    };
    const int stage = step.stage;
    switch (step.act) {
      case Act::receive_activation: own.input = true; return {};
      case Act::receive_gradient: own.gradient = true; return {};
      case Act::forward:
        own.output = true;
        if (stage == 0) return {};
        if (local(stage - 1)) {
          return lacks(held.at(stage - 1, step.microbatch).output, Act::forward, stage - 1);
        }
        return lacks(own.input, Act::receive_activation, stage);
      case Act::send_activation: return lacks(own.output, Act::forward, stage);
      case Act::send_gradient: return lacks(own.input_gradient, Act::backward, stage);
      case Act::backward_weight:
        own.released = true;
        return lacks(own.input_gradient, Act::backward_input, stage);
      default: break;
    }
    own.input_gradient = true;
    own.released = own.released || step.act == Act::backward;
    if (!own.output) return lacks(false, Act::forward, stage);
    if (stage + 1 == program_.stages()) return {};
    if (local(stage + 1)) {
      return lacks(held.at(stage + 1, step.microbatch).input_gradient, Act::backward, stage + 1);
    }
    return lacks(own.gradient, Act::receive_gradient, stage);
  }

  /// Lets the ranks meet: a message runs when its sender and its receiver both are at it.
  void meet() {
    std::vector<size_t> at(program_.steps.size(), 0);
    const auto next = [&](int rank) -> const PipelineStep* {
      const size_t i = at[static_cast<size_t>(rank)];
      return i < steps(rank).size() ? &steps(rank)[i] : nullptr;
    };
    for (bool goes_on = true; std::exchange(goes_on, false);) {
      for (int r = 0; r < program_.ranks(); ++r) {
        for (const PipelineStep* step = next(r); step; step = next(r)) {
          const bool is_message = sends(step->act) || receives(step->act);
          if (is_message) {
            const PipelineStep* peer = next(rank_of(other_stage(*step)));
            if (!peer || !(*peer == other_end(*step))) break;
            ++at[static_cast<size_t>(rank_of(other_stage(*step)))];
          }
          ++at[static_cast<size_t>(r)];
          goes_on = true;
        }
      }
    }
    for (int r = 0; r < program_.ranks(); ++r) {
      const PipelineStep* step = next(r);
      if (!step) continue;
      const int other = rank_of(other_stage(*step));
      const PipelineStep* peer = next(other);
      add(Fault::deadlock, r, "rank ", r, " waits at the ", *step, " for rank ", other,
          ", which waits at the ", peer ? concat(*peer) : "end", ", expected both at one message");
    }
  }

  static PipelineStep other_end(const PipelineStep& step) {
    constexpr auto turned = [](Act act) {
      switch (act) {
        case Act::send_activation: return Act::receive_activation;
        case Act::receive_activation: return Act::send_activation;
        case Act::send_gradient: return Act::receive_gradient;
        default: return Act::send_gradient;
      }
    };
    return {turned(step.act), other_stage(step), step.microbatch};
  }

  const PipelineProgram& program_;
  const PipelineMemory& memory_;
  std::vector<PipelineDefect> defects_;
};

}  // namespace

static void check_bytes(const PipelineProgram& program, const PipelineMemory& memory) {
  const std::pair<const char*, size_t> sizes[] = {
      {"activation_bytes", memory.activation_bytes.size()},
      {"output_bytes", memory.output_bytes.size()}};
  for (const auto& [name, given] : sizes) {
    if (given == 0 || given == program.rank_of_stage.size()) continue;
    fail("pipeline: number of ", name, " is ", given, ", expected ", program.stages(),
         ", one a stage");
  }
}

std::vector<int64_t> held_bytes(const PipelineProgram& program, const PipelineMemory& memory) {
  check(program);
  check_bytes(program, memory);
  std::vector<int64_t> held;
  for (int rank = 0; rank < program.ranks(); ++rank) held.push_back(held_by(program, memory, rank));
  return held;
}

std::vector<PipelineDefect> defects_of(const PipelineProgram& program,
                                       const PipelineMemory& memory) {
  check_bytes(program, memory);
  return PipelineCheck(program, memory).defects();
}

void check(const PipelineProgram& program, const PipelineMemory& memory) {
  const std::vector<PipelineDefect> defects = defects_of(program, memory);
  if (defects.empty()) return;
  fail("pipeline: ", name_of(defects[0].fault), ": ", defects[0].text);
}

}  // namespace weft

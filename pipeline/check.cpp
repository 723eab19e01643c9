// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <tuple>
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

namespace {

/// Translates the steps of one rank. Slots are what a microbatch leaves in a stage.
class PipelineTranslation {
 public:
  PipelineTranslation(const PipelineProgram& program, const PipelineMemory& memory, int rank)
      : program_(program), memory_(memory) {
    made_.title = program.name;
    made_.rank = rank;
    made_.mesh = {{"pp", program.ranks()}};
  }

  Program program() && {
    for (const PipelineStep& step : program_.steps[static_cast<size_t>(made_.rank)]) add(step);
    return std::move(made_);
  }

 private:
  /// The input and the gradient that another rank sends, what forward leaves, the gradient of the
  /// input, and what the backward of the weights reads.
  enum class Part : uint8_t { input, activation, gradient, input_gradient, products };
  using Key = std::tuple<Part, int, int>;

  bool is_stage(int stage) const { return stage >= 0 && stage < program_.stages(); }
  int rank_of(int stage) const { return program_.rank_of_stage[static_cast<size_t>(stage)]; }
  bool is_local(int stage) const { return is_stage(stage) && rank_of(stage) == made_.rank; }
  static int64_t bytes_of(const std::vector<int64_t>& bytes, int stage) {
    return bytes.empty() ? 0 : bytes[static_cast<size_t>(stage)];
  }
  /// The bytes that come from or go to another rank over the border behind `stage`.
  int64_t message(int stage) const {
    const bool travels =
        is_stage(stage) && is_stage(stage + 1) && rank_of(stage) != rank_of(stage + 1);
    return travels ? bytes_of(memory_.output_bytes, stage) : 0;
  }

  int slot(Part part, int stage, int microbatch) {
    const auto [found, is_new] = slots_.try_emplace(Key{part, stage, microbatch}, 0);
    if (!is_new) return found->second;
    constexpr const char* kNames[] = {"input", "activation", "gradient", "gradient of the input",
                                      "products"};
    constexpr Act kMakers[] = {Act::receive_activation, Act::forward, Act::receive_gradient,
                               Act::backward, Act::backward_input};
    const auto i = static_cast<size_t>(part);
    // The activations contain the input.
    const int64_t bytes[] = {message(stage - 1),
                             bytes_of(memory_.activation_bytes, stage) - message(stage - 1),
                             message(stage), message(stage - 1), 0};
    return found->second = made_.add_slot(
               {.name = concat(kNames[i], " of microbatch ", microbatch, " in stage ", stage),
                .bytes = bytes[i],
                .maker = concat("the ", PipelineStep{kMakers[i], stage, microbatch})});
  }

  void acquire(int slot) { made_.steps.push_back({.act = ProgramAct::acquire, .slot = slot}); }
  void release(int slot) { made_.steps.push_back({.act = ProgramAct::release, .slot = slot}); }

  /// Both ends of a message have the same `tag`.
  void run(ProgramAct act, const PipelineStep& step, std::vector<int> uses,
           const std::string& tag = {}) {
    const bool is_sent = sends(step.act) || receives(step.act);
    made_.steps.push_back({.act = act,
                           .verb = concat(step),
                           .change = tag,
                           .uses = std::move(uses),
                           .peer = is_sent ? rank_of(other_stage(step)) : -1});
  }

  void add(const PipelineStep& step) {
    const auto [act, stage, m] = step;
    const auto own = [&, s = stage, n = m](Part part) { return slot(part, s, n); };
    switch (act) {
      case Act::forward: return add_forward(step);
      case Act::receive_activation:
        acquire(own(Part::input));
        return run(ProgramAct::receive, step, {own(Part::input)},
                   concat("activation ", m, " of stage ", stage - 1));
      case Act::receive_gradient:
        acquire(own(Part::gradient));
        return run(ProgramAct::receive, step, {own(Part::gradient)},
                   concat("gradient ", m, " of stage ", stage + 1));
      case Act::send_activation:
        return run(ProgramAct::send, step, {own(Part::activation)},
                   concat("activation ", m, " of stage ", stage));
      case Act::send_gradient:
        run(ProgramAct::send, step, {own(Part::input_gradient)},
            concat("gradient ", m, " of stage ", stage));
        return release(own(Part::input_gradient));
      case Act::reduce: return run(ProgramAct::reduce, step, {});
      case Act::backward_weight:
        run(ProgramAct::compute, step, {own(Part::products)});
        release(own(Part::products));
        return release_activation(stage, m);
      default: add_backward(step);
    }
  }

  void add_forward(const PipelineStep& step) {
    const auto [act, stage, m] = step;
    acquire(slot(Part::activation, stage, m));
    std::vector<int> read;
    if (stage > 0) {
      const bool is_here = is_local(stage - 1);
      read = {is_here ? slot(Part::activation, stage - 1, m) : slot(Part::input, stage, m)};
    }
    run(ProgramAct::compute, step, read);
  }

  void release_activation(int stage, int m) {
    release(slot(Part::activation, stage, m));
    if (stage > 0 && !is_local(stage - 1)) release(slot(Part::input, stage, m));
  }

  /// Whole, or of the inputs.
  void add_backward(const PipelineStep& step) {
    const auto [act, stage, m] = step;
    const bool is_whole = act == Act::backward;
    acquire(slot(Part::input_gradient, stage, m));
    if (!is_whole) acquire(slot(Part::products, stage, m));
    std::vector<int> read = {slot(Part::activation, stage, m)};
    const bool is_last = stage + 1 == program_.stages();
    if (!is_last) {
      read.push_back(is_local(stage + 1) ? slot(Part::input_gradient, stage + 1, m)
                                         : slot(Part::gradient, stage, m));
    }
    run(ProgramAct::compute, step, read);
    if (!is_last) release(read[1]);
    if (is_whole) release_activation(stage, m);
    if (stage == 0) release(slot(Part::input_gradient, stage, m));
  }

  const PipelineProgram& program_;
  const PipelineMemory& memory_;
  Program made_;
  std::map<Key, int> slots_;
};

}  // namespace

std::vector<Program> programs_of(const PipelineProgram& program, const PipelineMemory& memory) {
  std::vector<Program> all;
  for (int rank = 0; rank < program.ranks(); ++rank) {
    all.push_back(PipelineTranslation(program, memory, rank).program());
  }
  return all;
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
    for (int r = 0; r < program_.ranks(); ++r) check_reductions(r);
    // The missing or repeated step is the cause of all others.
    if (defects_.empty()) check_order();
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

  void check_reductions(int rank) {
    std::vector<int> backwards(program_.rank_of_stage.size(), 0);
    for (const PipelineStep& step : steps(rank)) {
      int& done = backwards[static_cast<size_t>(step.stage)];
      if (releases(step.act)) ++done;
      if (step.act != Act::reduce || done >= program_.microbatches) continue;
      add(Fault::out_of_order, rank, step, " comes after ", done, " of ", program_.microbatches,
          " backwards on rank ", rank, ", expected it after all");
    }
  }

  /// Every step must find what it reads, and ranks must meet.
  void check_order() {
    const std::vector<Program> programs = programs_of(program_, memory_);
    for (const ProgramDefect& defect : weft::defects_of(programs, memory_.budget)) {
      const int rank = defect.rank;
      const std::string words = defect.text.substr(0, defect.text.find(", expected"));
      if (defect.fault == ProgramFault::not_released) {
        add(Fault::unreleased, rank, words, ", expected a backward that reads it last");
      } else if (defect.fault == ProgramFault::memory) {
        add(Fault::memory, rank, "activations of rank ", rank, " take ",
            programs[static_cast<size_t>(rank)].peak_bytes(), " bytes, expected at most ",
            memory_.budget);
      } else {
        add(defect.fault == ProgramFault::deadlock ? Fault::deadlock : Fault::out_of_order, rank,
            defect.text);
      }
    }
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
  for (const Program& one : programs_of(program, memory)) held.push_back(one.peak_bytes());
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

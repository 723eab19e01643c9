// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "weft/export.h"
#include "weft/picture.h"
#include "weft/program.h"

namespace weft {

/// What one step of a pipeline's program does. A message step belongs to the stage of the rank that
/// runs it: `send_activation` sends the stage's output to the next stage, `receive_activation`
/// receives its input, `send_gradient` sends the gradient of its input to the stage before, and
/// `receive_gradient` receives the gradient of its output.
enum class PipelineAct : uint8_t {
  forward,
  /// The gradients of inputs and parameters together.
  backward,
  /// The gradients of inputs; products that lead to parameters wait for `backward_weight`.
  backward_input,
  backward_weight,
  send_activation,
  receive_activation,
  send_gradient,
  receive_gradient,
  /// Reduces the gradients of the stage's parameters over its ranks. It has no microbatch (-1).
  reduce,
};
WEFT_API std::string_view name_of(PipelineAct act);

/// One step of a rank.
struct PipelineStep {
  PipelineAct act;
  int stage = 0;
  int microbatch = -1;
  bool operator==(const PipelineStep&) const = default;
};
/// "forward of microbatch 2 by stage 1".
WEFT_API std::ostream& operator<<(std::ostream& out, const PipelineStep& step);

/// The steps of all ranks along a pipeline axis in one training step, in the order in which each
/// rank runs them. A value: generated, or written by the user, then checked, printed, and run.
struct WEFT_API PipelineProgram {
  std::string name;
  int microbatches = 0;
  /// The rank that holds each stage.
  std::vector<int> rank_of_stage;
  /// The steps of each rank.
  std::vector<std::vector<PipelineStep>> steps;

  int ranks() const { return static_cast<int>(steps.size()); }
  int stages() const { return static_cast<int>(rank_of_stage.size()); }
  bool operator==(const PipelineProgram&) const = default;
};
/// One line a rank: "rank 0: F0 >F0 F1 ...": F, B, I and W compute (I: backward of the inputs),
/// ">F" sends and "<B" receives, R reduces; behind it the microbatch, and ".2" for stage 2 where a
/// rank has several stages.
WEFT_API std::ostream& operator<<(std::ostream& out, const PipelineProgram& program);

/// All forwards, then all backwards (Huang et al. 2019). Memory for all microbatches.
WEFT_API PipelineProgram gpipe(int ranks, int microbatches);
/// One forward, one backward (PipeDream-flush, Narayanan et al. 2021): rank r holds the activations
/// of at most ranks - r microbatches.
WEFT_API PipelineProgram one_forward_one_backward(int ranks, int microbatches);
/// The same with `chunks` stages a rank, stage s on rank s % ranks (Megatron-LM, Narayanan et al.
/// 2021): the bubble is `chunks` times smaller, messages are as many times more.
WEFT_API PipelineProgram interleaved(int ranks, int microbatches, int chunks = 2);
/// ZB-H1 (Qi et al. 2023): gradients of weights fill the bubble of `one_forward_one_backward`; no
/// rank holds the activations of more microbatches than its first one does there.
WEFT_API PipelineProgram zero_bubble(int ranks, int microbatches);
/// "gpipe", "1f1b", "interleaved" (`chunks` stages a rank) or "zb"; std::invalid_argument lists the
/// names.
WEFT_API PipelineProgram pipeline_program(std::string_view name, int ranks, int microbatches,
                                          int chunks = 2);
/// Adds to a table of computing steps alone, by rank, the messages between ranks and the
/// reductions. Both ranks of a message get it at the time at which equal steps would produce it, so
/// that all ranks meet in one order. std::invalid_argument, with the defect, for a table that
/// cannot run.
WEFT_API PipelineProgram with_messages(std::string name, int microbatches,
                                       std::vector<int> rank_of_stage,
                                       const std::vector<std::vector<PipelineStep>>& table);

/// What is wrong with a program.
enum class PipelineFault : uint8_t {
  /// A stage, rank or microbatch that does not exist, or a step on a rank without its stage.
  misplaced,
  missing,
  repeated,
  /// A step reads what is not there yet, or what was released.
  out_of_order,
  /// A microbatch counts never, or more than once, in the gradient of a stage.
  gradient_scale,
  /// Ranks wait for each other: a send and a receive both wait until the other rank reaches them.
  deadlock,
  /// An activation is acquired and never released.
  unreleased,
  memory,
};
WEFT_API std::string_view name_of(PipelineFault fault);

struct PipelineDefect {
  PipelineFault fault;
  int rank = 0;
  /// A sentence: "backward of microbatch 2 by stage 1 is missing on rank 1, expected once".
  std::string text;
};

/// The bytes of one microbatch in each stage, and those that a rank may hold (0: any number).
struct PipelineMemory {
  /// The bytes that its forward leaves, with its input, until its last backward.
  std::vector<int64_t> activation_bytes = {};
  int64_t budget = 0;
  /// The bytes of the output that the next stage receives; empty: 0. A rank holds a received
  /// activation until its forward, a received gradient until its backward, and a gradient for
  /// another rank until it is sent.
  std::vector<int64_t> output_bytes = {};
};

/// Finds the defects of a program, those that others follow from first: nothing is run.
WEFT_API std::vector<PipelineDefect> defects_of(const PipelineProgram& program,
                                                const PipelineMemory& memory = {});
/// The program of each rank, with slots for what microbatches leave in stages.
WEFT_API std::vector<Program> programs_of(const PipelineProgram& program,
                                          const PipelineMemory& memory = {});
/// The most bytes that each rank holds of activations and messages, by the same count.
WEFT_API std::vector<int64_t> held_bytes(const PipelineProgram& program,
                                         const PipelineMemory& memory);
/// std::invalid_argument "pipeline: <fault>: <text>" for the first defect.
WEFT_API void check(const PipelineProgram& program, const PipelineMemory& memory = {});

/// Seconds of the steps of one microbatch; a backward takes both of its parts.
struct PipelineTimes {
  double forward = 1, backward_input = 1, backward_weight = 1;
  /// From a send to the end of its receive; ranks compute meanwhile.
  double message = 0;
  /// Multiplies the times of each stage; empty: 1.
  std::vector<double> stages = {};
};

/// When a computing step runs.
struct PipelineSpan {
  PipelineStep step;
  double begin = 0, end = 0;
};

/// The time and the memory that a program needs.
struct PipelinePrediction {
  /// Until the last rank has ended.
  double seconds = 0;
  /// The part of all ranks' time in which they do not compute.
  double bubble = 0;
  /// By rank: the most microbatches, over its stages, whose activations it holds at a time.
  std::vector<int> held;
  std::vector<std::vector<PipelineSpan>> spans;
};
/// Computes when each step runs. std::invalid_argument for a program that cannot end.
WEFT_API PipelinePrediction predict(const PipelineProgram& program,
                                    const PipelineTimes& times = {});

/// Draws the program over time, one row a rank.
WEFT_API Picture visualize(const PipelineProgram& program, const PipelineTimes& times = {});

}  // namespace weft

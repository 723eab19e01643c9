// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "mesh/grid.h"
#include "mesh/plan.h"

namespace weft {

inline const Placement kSum = Partial{ReduceOp::sum};

/// State of the elements between two steps. bf16 and f16 are f32 between two reductions.
struct PlanState {
  Pattern pattern;
  DType dtype = DType::f32;
  bool operator==(const PlanState&) const = default;
};

/// Start, goal and constraints of a search. Axes of size 1 are Replicate in both states.
struct PlanProblem {
  const MeshGrid& grid;
  Shape shape;
  PlanState from;
  PlanState to = {};
  PlanOptions options;
};

/// A step that can be taken from a state.
struct PlanEdge {
  PlanStep::Kind kind = PlanStep::Kind::local;
  Axes axes = {};
  ReduceOp op = ReduceOp::sum;
  PlanState to = {};
  double seconds = 0;
  /// Bytes of result and scratch memory, on the rank that needs most.
  int64_t bytes = 0;
};

/// The cost of a step on this rank: bytes that it receives from others, as the transports count
/// them, and bytes of scratch memory, for a dense block.
struct StepBytes {
  int64_t received, scratch;
};
StepBytes bytes_of_step(const PlanProblem& problem, const PlanState& from, const PlanEdge& edge);

/// Bytes of the block of the rank that holds most in that state.
int64_t most_bytes(const PlanProblem& problem, const PlanState& state);
/// Sets the time of a step from `from` on the busiest rank, predicted from a sample of the ranks,
/// and its bytes.
void predict(const PlanProblem& problem, const PlanState& from, PlanEdge& edge);

/// The steps of least predicted time under the memory cap; std::invalid_argument when there are
/// none.
std::vector<PlanEdge> cheapest_steps(const PlanProblem& problem);

/// True when the axis cuts the same dim after the same axes in both.
bool cuts_alike(const Pattern& a, const Pattern& b, int axis);

/// Axes along which ranks must communicate to get from one pattern to the other in one step, in
/// mesh order.
Axes talking_axes(const MeshGrid& grid, const Pattern& from, const Pattern& to);

/// True when a rank at `coordinates` adds nothing to a Partial(sum) that `to` has and `from` does
/// not have.
bool counts_elsewhere(const Pattern& from, const Pattern& to, const Coordinates& coordinates);

/// True when `to` has a Partial(sum) where `from` has none, so some blocks are zeroed.
bool makes_sums(const MeshGrid& grid, const Pattern& from, const Pattern& to);

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "mesh/grid.h"
#include "mesh/plan.h"
#include "src/comm/transport.h"
#include "weft/program.h"

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
};

/// The cost of a step on this rank: bytes that it receives from others, as the transports count
/// them, and bytes of scratch memory, for a dense block.
struct StepBytes {
  int64_t received, scratch;
};
StepBytes bytes_of_step(const PlanProblem& problem, const PlanState& from, const PlanEdge& edge);

/// Sets the time of a step from `from` on the busiest rank, predicted from a sample of the ranks.
void predict(const PlanProblem& problem, const PlanState& from, PlanEdge& edge);

/// The steps of least predicted time.
std::vector<PlanEdge> cheapest_steps(const PlanProblem& problem);

/// The pattern with Replicate on axes of one device: what they cut is the same.
Pattern without_trivial_axes(const MeshGrid& grid, Pattern pattern);

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

/// Elements of this rank's result that are read from the same members of a group.
struct BoxRead {
  /// In the coordinates of the result.
  Box into;
  /// A member, and the offset of the elements in its block.
  struct Source {
    int member;
    Dims offset;
  };
  /// In the order of the group; several sources are reduced.
  std::vector<Source> sources;
};

/// The reads of one rank from other blocks: an exchange, or a step that it does alone (group of
/// one).
struct ReadProgram {
  /// Index of this rank in the group.
  int self = 0;
  /// Fills the result with zeros first, because not all of it is read.
  bool zeroed = false;
  std::vector<BoxRead> reads;
};

/// Boxes of a block that are sent to, or received from, the members of a group, in their order.
struct PackedBoxes {
  void add(const Box& box);
  /// All boxes of a block of that shape were added.
  void close(const Shape& block);

  std::vector<Box> boxes;
  std::vector<int64_t> counts;
  int64_t total = 0;
  /// The boxes are contiguous in the dense block, which is sent or received without packing.
  bool in_place = false;
};

/// This rank's part of one step.
struct StepProgram {
  Communicator group = {};
  ReadProgram read = {};
  PackedBoxes send = {};
  PackedBoxes recv = {};
};

/// The steps of a plan, worked out for this rank.
class PlanProgram {
 public:
  explicit PlanProgram(const Plan& plan);

  std::vector<StepProgram> steps;
  /// The plan as text, for error messages of the ranks that run it.
  std::string words;
  uint64_t content;
};

/// The steps of a plan with the memory that they take; what `explain` prints.
Program program_of(const Plan& plan);

/// True when step `i` makes a part of the plan's result, directly in its place: the step and the
/// following last one are phases of one exchange, and the last one reduces nothing.
bool is_made_in_result(const Plan& plan, size_t i);

/// The boxes of this rank's block that others want, and those of members that this rank wants.
PackedBoxes sent_boxes(const Layout& from, std::span<const Box> wanted);
PackedBoxes received_boxes(const Layout& from, std::span<const int> members, const Box& wanted);

/// Returns the reads for the box that this rank wants of a tensor laid out as `from`, over the axes
/// that cut it.
ReadProgram reads_of(const MeshGrid& grid, const Layout& from, const Axes& axes, const Box& wanted);

/// Fills `out` from the members' blocks and returns the bytes that came from other ranks. A member
/// without block is a rank of a simulated cluster: its bytes are counted.
int64_t read_boxes(const ReadProgram& program, ReduceOp op,
                   std::span<const MemoryBlock* const> members, const MemoryBlock& out);

/// Runs an exchange in which `read(phase, shown)` does what ExchangeReader::read states.
template <class F> void exchange(const Communicator& group, const Exchange& call, F read) {
  struct Reader final : ExchangeReader {
    explicit Reader(F& by) : by_(by) {}
    int64_t read(int phase, std::span<const void* const> shown) override {
      return by_(phase, shown);
    }
    F& by_;
  } reader(read);
  const GroupCall scope(*group.transport(), CollectiveKind::exchange);
  group.transport()->exchange(call, reader);
}

/// Runs the collective of a step, by default the all_to_all: sends boxes of `in` to the members and
/// puts those that come into `out`.
void send_boxes(const StepProgram& program, const MemoryBlock& in, const MemoryBlock& out,
                PlanStep::Kind kind = PlanStep::Kind::all_to_all, ReduceOp op = ReduceOp::sum);

}  // namespace weft

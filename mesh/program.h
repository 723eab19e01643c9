// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "mesh/grid.h"
#include "mesh/plan.h"

namespace weft {

/// Elements of this rank's result that come from the same members of a group.
struct BoxRead {
  /// In the result's own coordinates.
  Box into;
  /// A member, and where the elements begin in its block.
  struct Source {
    int member;
    Dims offset;
  };
  /// In the group's order; several are reduced.
  std::vector<Source> sources;
};

/// One rank's reads of other blocks: an exchange, or what a rank does by itself (group of one).
struct ReadProgram {
  /// This rank's number in the group.
  int self = 0;
  /// The result is zeroed first: not all of it is read.
  bool zeroed = false;
  std::vector<BoxRead> reads;
};

/// Parts of a block that go to, or come from, the members of a group, in their order.
struct Parts {
  void add(const Box& box);

  std::vector<Box> boxes;
  std::vector<int64_t> counts;
  int64_t total = 0;
  /// The boxes lie one after the other in the dense block: it is sent or received as it is.
  bool in_place = false;
};

/// What the members of a group do in one step, worked out once for this rank.
struct StepProgram {
  Communicator group;
  ReadProgram read;
  Parts send;
  Parts recv;
};

/// The steps of a plan, worked out.
class PlanProgram {
 public:
  explicit PlanProgram(const Plan& plan);

  std::vector<StepProgram> steps;
  /// The plan in words, for errors of the ranks that run it.
  std::string words;
  uint64_t content;
};

/// True when what step `i` makes is a part of the plan's result and is made in its place there:
/// both it and the last step, which follows, are phases of one exchange, and the last one reduces
/// nothing.
bool is_made_in_result(const Plan& plan, size_t i);

/// Reads of the boxes that this rank wants of a tensor laid out as `from`, over the axes that cut
/// it.
ReadProgram reads_of(const MeshGrid& grid, const Layout& from, const Axes& axes, const Box& wanted);

/// Fills `out` from the members' blocks (no data: a rank that is not there; its bytes are counted)
/// and returns the bytes that came from other ranks.
int64_t read_boxes(const ReadProgram& program, ReduceOp op, std::span<const Block> members,
                   const Block& out);

/// out = op of the sources, element by element, in that order. All have out's shape.
void reduce_blocks(ReduceOp op, std::span<const Block> sources, const Block& out);

/// Dense copies of the boxes of `in`, one after the other, in `memory`; and back.
void pack(const Block& in, const Parts& parts, void* memory);
void unpack(const void* memory, const Parts& parts, const Block& out);

}  // namespace weft

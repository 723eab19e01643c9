// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weft/block.h"
#include "weft/communicator.h"
#include "weft/extend/pattern.h"

namespace weft {

// Tensors that move from the ranks of one mesh to those of another. Ranks are those of a group that
// has all ranks of both.

/// A mesh as a group sees it: the sizes of its axes, and the group's rank of each of its ranks.
struct MeshRanks {
  std::string words;
  std::vector<int> sizes;
  std::vector<int> ranks;

  /// Index of a rank of the group in the mesh; -1 outside of it.
  int index_of(int rank) const;
};

/// A tensor that moves, with its cuts over both meshes: no Partial, no inner factor of a dim.
struct MovedTensor {
  std::string name;
  Shape shape;
  DType dtype;
  Pattern from, to;
};

/// Elements of a tensor that one rank sends to another, in a round; `box` is in global coordinates.
struct MovedPart {
  size_t tensor;
  int from, to;
  Box box;
  int round = 0;
};

/// The move of some tensors. A pure function of its arguments: equal on all ranks.
class MeshMovePlan {
 public:
  /// Each rank receives those elements of its parts over `to` that it does not hold over `from`,
  /// and no others: of the ranks that hold them, from one on its own host if there is one, and of
  /// these from the one that sends the fewest bytes so far. `hosts` has the host of each rank. In a
  /// round a rank sends and receives at most `round_bytes` (0: all is one round).
  MeshMovePlan(std::vector<MovedTensor> tensors, MeshRanks from, MeshRanks to,
               std::vector<int> hosts, int64_t round_bytes);

  const std::vector<MovedTensor>& tensors() const { return tensors_; }
  const MeshRanks& from() const { return from_; }
  const MeshRanks& to() const { return to_; }
  /// In the order of rounds; each round has one dtype.
  const std::vector<MovedPart>& parts() const { return parts_; }
  int rounds() const { return rounds_; }
  /// Returns whether some rank receives elements of the tensor.
  bool crosses(size_t tensor) const { return crosses_[tensor]; }
  int64_t bytes_of(const MovedPart& part) const;
  int64_t received_bytes(int rank) const;
  int64_t sent_bytes(int rank) const;
  /// Bytes of a rank's parts over `to` that it holds over `from`.
  int64_t kept_bytes(int rank) const;
  /// The box that a rank of the group holds of a tensor over each mesh; empty outside of it.
  Box held(size_t tensor, int rank) const;
  Box wanted(size_t tensor, int rank) const;
  uint64_t hash() const { return hash_; }
  /// A line for each tensor and for each rank that receives, and a total.
  std::string in_words() const;

  /// Some of the tensors, in that order, the other way: what the adjoint moves.
  MeshMovePlan reversed(std::span<const size_t> tensors) const;

 private:
  struct Chooser;
  void add_parts(size_t tensor, Chooser& chooser);
  void split_parts();
  void assign_rounds();

  std::vector<MovedTensor> tensors_;
  MeshRanks from_, to_;
  std::vector<int> hosts_;
  int64_t round_bytes_;
  std::vector<MovedPart> parts_;
  std::vector<bool> crosses_;
  int rounds_ = 0;
  uint64_t hash_ = 0;
};

/// This rank's blocks of a plan's tensors: `in` over the mesh that they come from, `out` over the
/// other; on a rank outside of that mesh, empty lists. `device` is where they are, of the same kind
/// on all ranks.
struct MovedBlocks {
  std::vector<MemoryBlock> in, out;
  Device device;
};

/// Moves the elements. Collective over `ranks`. Where ranks read each other's memory, each reads
/// its parts in place; elsewhere parts are packed and sent round by round.
void run(const MeshMovePlan& plan, const Communicator& ranks, const MovedBlocks& blocks);

}  // namespace weft

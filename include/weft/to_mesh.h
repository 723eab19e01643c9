// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "weft/communicator.h"
#include "weft/export.h"
#include "weft/mesh.h"
#include "weft/tensor.h"

namespace weft {

/// Tensors by name; empty on ranks outside of their mesh.
using TensorsByName = std::map<std::string, Tensor>;

/// Returns the placements of a tensor over the mesh that it moves to. Called there only.
using ChosenPlacements = std::function<Placements(const std::string& name, const Shape& shape)>;

/// How tensors move between meshes.
struct MeshMoveOptions {
  /// A group of the ranks of both meshes and no others, all of which make the move. By default the
  /// ranks of the mesh that contains the other one.
  Communicator ranks = {};
  /// The most bytes that a rank packs, and that it receives, at a time where ranks do not read each
  /// other's memory; 0: all at once. Parts are sent in as many rounds as that takes.
  int64_t round_bytes = 0;
};

/// A move of tensors from the ranks of one mesh to those of another: planned once, and run any
/// number of times. Both meshes may have different ranks, the same, or some in common. Each rank
/// receives the elements that it lacks and no others, each from one of the ranks that hold it; all
/// tensors move in one plan. Partial tensors are reduced over their mesh first.
class WEFT_API MeshMove {
 public:
  /// Collective over the ranks of both meshes, which agree on the layouts and plan alike. `tensors`
  /// are over the mesh that they come from, and empty on other ranks; `to` is empty on ranks
  /// outside of it. std::invalid_argument, on all ranks, when a rank is in neither mesh or in
  /// another world, or a placement does not fit.
  MeshMove(const TensorsByName& tensors, const DeviceMesh& to, const ChosenPlacements& placements,
           const MeshMoveOptions& options = {});
  ~MeshMove();

  /// Returns the tensors over the mesh that they move to. `tensors` have the names, shapes, dtypes
  /// and layouts of those that the move was made for. Collective, as the move is.
  ///
  /// Tensors that required a gradient then are recorded unless gradients are disabled: backward
  /// moves the gradient to the mesh that they came from. It is collective too: ranks outside of
  /// `to` get a scalar 0 in place of each such tensor, and call its backward(). They get empty
  /// handles in place of the others.
  TensorsByName run(const TensorsByName& tensors) const;
  /// The same, without recording, into existing tensors of the layouts that `run` returns: updates
  /// the weights of a server without new memory.
  void run(const TensorsByName& tensors, const TensorsByName& into) const;

  /// Bytes that a run receives on this rank, after Partial tensors are reduced, and bytes that it
  /// copies from this rank's own parts.
  int64_t received_bytes() const;
  int64_t kept_bytes() const;
  /// The group whose ranks make the move, and its traffic.
  const Communicator& ranks() const;
  /// The layouts, what each rank receives from which other, and the totals.
  std::string explain() const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

/// "mesh(dp=2) of ranks 0, 1 -> ...": MeshMove::explain.
WEFT_API std::ostream& operator<<(std::ostream& out, const MeshMove& move);

/// Returns the same values over another mesh: makes a MeshMove and runs it. `tensor` is empty on
/// ranks outside of its mesh, `mesh` on ranks outside of the mesh that it moves to. Recorded for
/// backward, as MeshMove::run states.
WEFT_API Tensor to_mesh(const Tensor& tensor, const DeviceMesh& mesh, const Placements& placements,
                        const MeshMoveOptions& options = {});
WEFT_API TensorsByName to_mesh(const TensorsByName& tensors, const DeviceMesh& mesh,
                               const ChosenPlacements& placements,
                               const MeshMoveOptions& options = {});

}  // namespace weft

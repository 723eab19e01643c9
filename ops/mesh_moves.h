// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mesh/mesh_move.h"
#include "mesh/plan.h"
#include "weft/to_mesh.h"

namespace weft {

/// A tensor of a move.
struct MoveItem {
  std::string name;
  Shape shape;
  DType dtype;
  bool requires_grad;
  /// On ranks of the mesh that it comes from: its layout, and the one that is sent, without Partial
  /// and cuts of inner factors.
  Ref<Layout> given, sent;
  /// On ranks of the other mesh: the layout that is received, and the one asked for.
  Ref<Layout> received, target;
};

struct MeshMove::State {
  Communicator ranks;
  Device device;
  /// In the order of their names.
  std::vector<MoveItem> items;
  std::optional<MeshMovePlan> plan;
  /// True when all ranks are in both meshes: then each has the graph of the gradients, too.
  bool same_ranks = false;
  /// Indices of the tensors that are recorded, the move of their gradients, and that of the
  /// gradients of these.
  std::vector<size_t> recorded;
  std::optional<MeshMovePlan> back, again;
};

/// Agrees with the ranks of both meshes on what moves, and plans it. Collective.
std::shared_ptr<MeshMove::State> agreed_move(const TensorsByName& tensors, const DeviceMesh& to,
                                             const ChosenPlacements& placements,
                                             const MeshMoveOptions& options);

}  // namespace weft

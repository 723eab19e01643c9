// SPDX-License-Identifier: Apache-2.0
#include "nn/squares.h"

#include <algorithm>
#include <utility>

#include "weft/error.h"
#include "weft/mesh.h"

namespace weft {

namespace {

/// A root mesh, and whether some tensor is sharded over it.
struct CutMesh {
  DeviceMesh mesh;
  bool cuts;
};

}  // namespace

static std::vector<CutMesh> cut_meshes(const char* what, const Tensors& tensors) {
  std::vector<CutMesh> meshes;
  for (const Tensor& tensor : tensors) {
    const Sharding sharding = tensor.sharding();
    if (!sharding) continue;
    if (sharding.has_partial()) {
      fail(what, ": a gradient ", tensor.shape(), " is laid out as ", sharding,
           ", expected no Partial");
    }
    const DeviceMesh mesh = sharding.mesh();
    auto found = std::find_if(meshes.begin(), meshes.end(),
                              [&](const CutMesh& other) { return other.mesh == mesh; });
    if (found == meshes.end()) {
      meshes.push_back({mesh, false});
      found = meshes.end() - 1;
    }
    for (int axis = 0; axis < mesh.ndim(); ++axis) {
      found->cuts |= sharding[axis].is_shard() && mesh.axis_size(axis) > 1;
    }
  }
  return meshes;
}

/// Returns the ranks of the largest mesh, which must include those of the other meshes. Of equally
/// large meshes it prefers one over which a tensor is sharded.
static Communicator widest_ranks(const char* what, const std::vector<CutMesh>& meshes) {
  const auto width = [](const CutMesh& of) { return std::pair(of.mesh.size(), of.cuts); };
  const CutMesh* widest = &meshes[0];
  for (const CutMesh& other : meshes) {
    if (width(other) > width(*widest)) widest = &other;
  }
  const Communicator ranks = widest->mesh.communicator();
  for (const CutMesh& other : meshes) {
    const Communicator others = other.mesh.communicator();
    // Ranks might choose differently among equally large meshes with different communicators.
    const bool is_ambiguous = width(other) == width(*widest) && other.cuts && !(others == ranks);
    if (ranks.contains(others) && !is_ambiguous) continue;
    fail(what, ": tensors are laid out over ", widest->mesh, " of ", ranks.name(), " and over ",
         other.mesh, " of ", others.name(), ", expected ranks of which one has all of the other");
  }
  return ranks;
}

/// True on the first of the ranks that hold the same elements.
static bool is_first_holder(const Sharding& sharding) {
  const DeviceMesh mesh = sharding.mesh();
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    if (!sharding[axis].is_shard() && mesh.coordinate(axis) > 0) return false;
  }
  return true;
}

SquaresReduction::SquaresReduction(const char* what, const Tensors& tensors)
    : counts_(tensors.size(), true) {
  const std::vector<CutMesh> meshes = cut_meshes(what, tensors);
  if (meshes.empty()) return;
  ranks_ = widest_ranks(what, meshes);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Sharding sharding = tensors[i].sharding();
    counts_[i] = sharding ? is_first_holder(sharding) : ranks_.rank() == 0;
  }
}

void SquaresReduction::reduce(const Tensor& sums) const {
  if (!ranks_ || ranks_.size() == 1) return;
  const int64_t count = sums.numel();
  void* data = sums.block().data;
  const Piece piece{.send = data,
                    .recv = data,
                    .dtype = sums.dtype(),
                    .counts = {&count, 1},
                    .device = sums.device()};
  ranks_.all_reduce({&piece, 1}, ReduceOp::sum).wait();
  sums.storage()->mark_changed();
}

}  // namespace weft

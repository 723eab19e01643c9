// SPDX-License-Identifier: Apache-2.0
#include "nn/squares.h"

#include <algorithm>

#include "weft/error.h"
#include "weft/mesh.h"

namespace weft {

namespace {

/// A root mesh, and the axes along which some tensor is cut.
struct CutMesh {
  DeviceMesh mesh;
  std::vector<bool> cut;
};

}  // namespace

static std::vector<CutMesh> cut_meshes(const char* what, const Tensors& tensors) {
  std::vector<CutMesh> meshes;
  for (const Tensor& tensor : tensors) {
    const Sharding sharding = tensor.sharding();
    if (!sharding) continue;
    if (sharding.has_partial()) {
      fail(what, ": a gradient ", tensor.shape(), " is laid out as ", sharding,
           "; its parts are not added up yet");
    }
    const DeviceMesh mesh = sharding.mesh();
    auto found = std::find_if(meshes.begin(), meshes.end(),
                              [&](const CutMesh& other) { return other.mesh == mesh; });
    if (found == meshes.end()) {
      meshes.push_back({mesh, std::vector<bool>(static_cast<size_t>(mesh.ndim()))});
      found = meshes.end() - 1;
    }
    for (int axis = 0; axis < mesh.ndim(); ++axis) {
      const bool cuts = sharding[axis].is_shard() && mesh.axis_size(axis) > 1;
      if (cuts) found->cut[static_cast<size_t>(axis)] = true;
    }
  }
  std::erase_if(meshes, [](const CutMesh& of) {
    return std::find(of.cut.begin(), of.cut.end(), true) == of.cut.end();
  });
  return meshes;
}

/// The one axis along which tensors are cut; -1 when there are several.
static int only_cut_axis(const std::vector<CutMesh>& meshes) {
  if (meshes.size() != 1) return -1;
  const std::vector<bool>& cut = meshes[0].cut;
  if (std::count(cut.begin(), cut.end(), true) != 1) return -1;
  return static_cast<int>(std::find(cut.begin(), cut.end(), true) - cut.begin());
}

/// The ranks of the largest mesh: those of the others are among them.
static Communicator widest_ranks(const char* what, const std::vector<CutMesh>& meshes) {
  const CutMesh* widest = &meshes[0];
  for (const CutMesh& other : meshes) {
    if (other.mesh.size() > widest->mesh.size()) widest = &other;
  }
  const Communicator ranks = widest->mesh.communicator();
  for (const CutMesh& other : meshes) {
    const bool unclear =
        other.mesh.size() == widest->mesh.size() && !(other.mesh.communicator() == ranks);
    if (!unclear) continue;
    fail(what, ": tensors are cut over ", widest->mesh, " of ", ranks.name(), " and over ",
         other.mesh, " of ", other.mesh.communicator().name(),
         ", of which neither is known to have the other's ranks");
  }
  return ranks;
}

/// Of the ranks that hold the same elements, along `only_axis` or all axes, the first.
static bool is_first_holder(const Tensor& tensor, int only_axis) {
  const Sharding sharding = tensor.sharding();
  const DeviceMesh mesh = sharding.mesh();
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    if (only_axis >= 0 && axis != only_axis) continue;
    if (!sharding[axis].is_shard() && mesh.coordinate(axis) > 0) return false;
  }
  return true;
}

SquaresReduction::SquaresReduction(const char* what, const Tensors& tensors)
    : counts_(tensors.size(), true) {
  const std::vector<CutMesh> meshes = cut_meshes(what, tensors);
  if (meshes.empty()) return;
  const int axis = only_cut_axis(meshes);
  const DeviceMesh& first = meshes[0].mesh;
  ranks_ = axis >= 0 ? first[first.axis_name(axis)].communicator() : widest_ranks(what, meshes);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Sharding sharding = tensors[i].sharding();
    const bool here = sharding && (axis < 0 || sharding.mesh() == first);
    counts_[i] = here ? is_first_holder(tensors[i], axis) : ranks_.rank() == 0;
  }
}

void SquaresReduction::reduce(const Tensor& sums) const {
  if (!ranks_) return;
  const int64_t count = sums.numel();
  void* data = sums.block().data;
  const Piece piece{data, data, sums.dtype(), {&count, 1}};
  ranks_.all_reduce({&piece, 1}, ReduceOp::sum).wait();
  sums.storage()->mark_changed();
}

}  // namespace weft

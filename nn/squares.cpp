// SPDX-License-Identifier: Apache-2.0
#include "nn/squares.h"

#include <algorithm>
#include <string_view>

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

/// Ranks that differ along the axes that cut something.
static Communicator ranks_along_cuts(const CutMesh& of) {
  std::vector<std::string_view> names;
  for (int axis = 0; axis < of.mesh.ndim(); ++axis) {
    if (of.cut[static_cast<size_t>(axis)]) names.push_back(of.mesh.axis_name(axis));
  }
  return of.mesh.view(names).communicator();
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

/// Of the ranks that hold the same elements and take part, the first: those that do not take part
/// differ along axes that cut nothing.
static bool is_first_holder(const Sharding& sharding, const std::vector<bool>& taking_part) {
  const DeviceMesh mesh = sharding.mesh();
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    if (!taking_part[static_cast<size_t>(axis)] || sharding[axis].is_shard()) continue;
    if (mesh.coordinate(axis) > 0) return false;
  }
  return true;
}

SquaresReduction::SquaresReduction(const char* what, const Tensors& tensors)
    : counts_(tensors.size(), true) {
  const std::vector<CutMesh> meshes = cut_meshes(what, tensors);
  if (meshes.empty()) return;
  const bool one_mesh = meshes.size() == 1;
  ranks_ = one_mesh ? ranks_along_cuts(meshes[0]) : widest_ranks(what, meshes);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Sharding sharding = tensors[i].sharding();
    if (sharding && (!one_mesh || sharding.mesh() == meshes[0].mesh)) {
      const std::vector<bool> all(static_cast<size_t>(sharding.axes()), true);
      counts_[i] = is_first_holder(sharding, one_mesh ? meshes[0].cut : all);
    } else {
      counts_[i] = ranks_.rank() == 0;
    }
  }
}

void SquaresReduction::reduce(const Tensor& sums) const {
  if (!ranks_) return;
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

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "mesh/cache.h"
#include "mesh/grid.h"
#include "mesh/layout.h"
#include "mesh/plan.h"

namespace weft {

/// How the tables of a mesh do.
struct MeshStatistics {
  CacheStatistics layouts;
  CacheStatistics plans;
  int64_t shardings = 0;
};

/// The bounded tables of one mesh on one rank. It is owned by the DeviceMesh handles, and goes with
/// the last of them, which empties the tables; tensors that live on keep only the MeshGrid.
class MeshBody : public std::enable_shared_from_this<MeshBody> {
 public:
  explicit MeshBody(std::shared_ptr<MeshGrid> grid);
  ~MeshBody();
  MeshBody(const MeshBody&) = delete;
  MeshBody& operator=(const MeshBody&) = delete;

  MeshGrid& grid() const { return *grid_; }
  MeshStatistics statistics() const;

  Cache<Layout> layouts;
  Cache<Plan> plans;
  /// The routes of op calls, kept here by the floor above.
  std::shared_ptr<void> routes;

 private:
  std::shared_ptr<MeshGrid> grid_;
};

/// New tables for a grid without any, kept for the calling thread until it ends or makes a mesh:
/// its last DeviceMesh is gone, but a tensor is used again.
MeshBody& adopted(MeshGrid& grid);

/// The tables of a sharding's mesh.
inline MeshBody& body_of(const Sharding& sharding) {
  MeshGrid& grid = *sharding.body()->grid;
  if (!grid.body) [[unlikely]]
    return adopted(grid);
  return *grid.body;
}

/// The same for a DeviceMesh to own.
std::shared_ptr<MeshBody> shared_body_of(const Sharding& sharding);

/// "[S(0), R]", with the order of the cuts where it is not mesh order.
std::ostream& print_placements(std::ostream& out, const Sharding& sharding);

/// The grid and tables of a new mesh, or of one that exists with these ranks and axes on every
/// rank. Collective.
std::shared_ptr<MeshBody> mesh_body_for(const Communicator& ranks, std::vector<MeshAxis> axes);

}  // namespace weft

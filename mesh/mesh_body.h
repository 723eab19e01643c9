// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "mesh/cache.h"
#include "mesh/grid.h"
#include "mesh/layout.h"
#include "mesh/plan.h"

namespace weft {

class RouteTable;

/// Counters of a mesh's tables.
struct MeshStatistics {
  CacheStatistics layouts;
  CacheStatistics plans;
  int64_t shardings = 0;
};

/// The bounded tables of one mesh on one rank, owned by the DeviceMesh handles. Destroying the last
/// handle empties the tables; tensors that outlive it keep only the MeshGrid.
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
  /// The routes of op calls; ops/ stores them here.
  std::shared_ptr<RouteTable> routes;

 private:
  std::shared_ptr<MeshGrid> grid_;
};

/// Makes new tables for a grid whose last DeviceMesh is gone but whose tensors are used again. The
/// calling thread keeps them until it ends or makes a mesh.
MeshBody& adopted(MeshGrid& grid);

/// Returns the tables of a sharding's mesh.
inline MeshBody& body_of(const Sharding& sharding) {
  MeshGrid& grid = *sharding.body()->grid;
  if (!grid.body) [[unlikely]]
    return adopted(grid);
  return *grid.body;
}

/// The same, for a DeviceMesh to own.
std::shared_ptr<MeshBody> shared_body_of(const Sharding& sharding);

/// Prints "[S(0), R]", with the order of the cuts where it differs from mesh order.
std::ostream& print_placements(std::ostream& out, const Sharding& sharding);

/// Returns the tables of a mesh: those of an existing grid if every rank has one with these ranks
/// and axes, new ones otherwise. Collective.
std::shared_ptr<MeshBody> mesh_body_for(const Communicator& ranks, std::vector<MeshAxis> axes);

}  // namespace weft

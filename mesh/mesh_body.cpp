// SPDX-License-Identifier: Apache-2.0
#include "mesh/mesh_body.h"

#include "src/comm/transport.h"
#include "weft/extend/end_on_thread.h"

namespace weft {

static constexpr size_t kLayoutCapacity = 4096;
static constexpr size_t kPlanCapacity = 1024;

namespace {

/// The meshes of one rank: grids to find again, and tables without a DeviceMesh.
struct RankMeshes {
  /// Declared first, so that it is destroyed after `adopted`.
  const std::shared_ptr<EndOnThread<MeshBody>> end = EndOnThread<MeshBody>::of_thread();
  std::vector<std::weak_ptr<MeshGrid>> grids;
  std::vector<std::shared_ptr<MeshBody>> adopted;

  /// Destroying tables may look up others, which are then adopted, so `adopted` is cleared twice.
  ~RankMeshes() {
    adopted.clear();
    end->reap();
    adopted.clear();
  }

  static RankMeshes& current() {
    WEFT_STATIC_TLS thread_local RankMeshes meshes;
    return meshes;
  }
};

}  // namespace

MeshBody::MeshBody(std::shared_ptr<MeshGrid> grid)
    : layouts(kLayoutCapacity), plans(kPlanCapacity), grid_(std::move(grid)) {
  grid_->body = this;
}

MeshBody::~MeshBody() {
  // Destroying routes and plans may look up these tables.
  routes.reset();
  plans.clear();
  layouts.clear();
  if (grid_->body == this) grid_->body = nullptr;
}

MeshStatistics MeshBody::statistics() const {
  return {layouts.statistics(), plans.statistics(), static_cast<int64_t>(grid_->shardings())};
}

static std::shared_ptr<MeshBody> owned(MeshBody* body) {
  return EndOnThread<MeshBody>::owned(body);
}

MeshBody& adopted(MeshGrid& grid) {
  auto body = owned(new MeshBody(grid.shared_from_this()));
  RankMeshes::current().adopted.push_back(body);
  return *body;
}

std::shared_ptr<MeshBody> shared_body_of(const Sharding& sharding) {
  MeshBody& body = body_of(sharding);
  if (auto shared = body.weak_from_this().lock()) return shared;
  RankMeshes& meshes = RankMeshes::current();
  // The tables may be in use: like adopted ones, they live until this thread makes a mesh.
  if (!meshes.end->revive(body)) return adopted(*sharding.body()->grid).shared_from_this();
  meshes.adopted.push_back(owned(&body));
  return meshes.adopted.back();
}

/// Returns the grid that this rank already has, or null.
static std::shared_ptr<MeshGrid> known_grid(const Communicator& ranks,
                                            const std::vector<MeshAxis>& axes) {
  auto& grids = RankMeshes::current().grids;
  std::erase_if(grids, [](const auto& grid) { return grid.expired(); });
  for (const auto& weak : grids) {
    std::shared_ptr<MeshGrid> grid = weak.lock();
    if (grid && grid->ranks() == ranks && grid->axes() == axes) return grid;
  }
  return nullptr;
}

/// True when every rank has the grid. Otherwise all make a new one: its construction is collective.
static bool agree(const Communicator& ranks, bool have) {
  int32_t everybody = have ? 1 : 0;
  const int64_t one = 1;
  Piece piece{.send = &everybody, .recv = &everybody, .dtype = i32, .counts = {&one, 1}};
  ranks.all_reduce({&piece, 1}, ReduceOp::min).wait();
  return everybody != 0;
}

/// Returns rank 0's costs on all ranks: ranks with different costs would make different plans.
static CostModel agreed_costs(const Communicator& ranks) {
  CostModel costs = cost_model_of(ranks);
  const int64_t count = sizeof(CostModel) / sizeof(double);
  Piece piece{.send = &costs, .recv = &costs, .dtype = f64, .counts = {&count, 1}};
  ranks.broadcast({&piece, 1}, 0).wait();
  return costs;
}

std::shared_ptr<MeshBody> mesh_body_for(const Communicator& ranks, std::vector<MeshAxis> axes) {
  RankMeshes& meshes = RankMeshes::current();
  meshes.adopted.clear();
  meshes.end->reap();
  std::shared_ptr<MeshGrid> grid = known_grid(ranks, axes);
  if (!agree(ranks, grid != nullptr)) {
    grid = std::make_shared<MeshGrid>(ranks, std::move(axes), agreed_costs(ranks));
    meshes.grids.insert(meshes.grids.begin(), grid);
  }
  if (grid->body) {
    if (auto body = grid->body->weak_from_this().lock()) return body;
  }
  return owned(new MeshBody(std::move(grid)));
}

}  // namespace weft

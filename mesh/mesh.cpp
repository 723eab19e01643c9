// SPDX-License-Identifier: Apache-2.0
#include "weft/mesh.h"

#include <numeric>
#include <ostream>

#include "mesh/mesh_body.h"
#include "src/comm/transport.h"
#include "weft/error.h"
#include "weft/extend/end_on_thread.h"

namespace weft {

std::string printed(std::span<const MeshAxis> axes) {
  const auto axis = [](const MeshAxis& each) { return concat(each.name, "=", each.size); };
  return concat("mesh(", listed(axes, axis), ")");
}

static void check_axes(const Communicator& ranks, const std::vector<MeshAxis>& axes) {
  if (axes.empty()) fail("mesh: number of axes is 0, expected at least 1");
  if (axes.size() > kMaxAxes)
    fail("mesh: number of axes is ", axes.size(), ", expected at most ", kMaxAxes);
  int64_t product = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].name.empty()) fail(printed(axes), ": name of axis ", i, " is empty, expected one");
    if (axes[i].size < 1) {
      fail(printed(axes), ": size of axis ", in_quotes(axes[i].name), " must be at least 1, got ",
           axes[i].size);
    }
    for (size_t j = 0; j < i; ++j) {
      if (axes[j].name == axes[i].name) {
        fail(printed(axes), ": two axes are called ", in_quotes(axes[i].name),
             ", expected different names");
      }
    }
    product = std::min<int64_t>(product * axes[i].size, INT32_MAX);
  }
  if (product != ranks.size()) {
    fail(printed(axes), ": number of its ranks is ", product, ", expected ", ranks.size(),
         ", those of the communicator ", in_quotes(ranks.name()));
  }
}

DeviceMesh::DeviceMesh(Communicator ranks, std::vector<MeshAxis> axes, DeviceKind device_type)
    : device_type_(device_type) {
  check_available({device_type, 0});
  if (!ranks) return;
  check_axes(ranks, axes);
  axes_.resize(axes.size());
  std::iota(axes_.begin(), axes_.end(), 0);
  body_ = mesh_body_for(ranks, std::move(axes));
}

DeviceMesh::DeviceMesh(std::shared_ptr<MeshBody> body) : body_(std::move(body)) {
  axes_.resize(body_ ? body_->grid().axes().size() : 0);
  std::iota(axes_.begin(), axes_.end(), 0);
}

static MeshGrid& grid_of(const std::shared_ptr<MeshBody>& body) {
  if (!body)
    fail(
        "mesh: this rank is not in the mesh, expected one of its ranks; check the mesh before "
        "using it");
  return body->grid();
}

bool DeviceMesh::operator==(const DeviceMesh& other) const {
  if (axes_ != other.axes_) return false;
  if (body_ == other.body_) return true;
  return body_ && other.body_ && body_->grid().is_same(other.body_->grid());
}

Device DeviceMesh::device() const {
  return {device_type_, static_cast<int8_t>(rank() % device_count(device_type_))};
}

int DeviceMesh::size() const {
  int size = 1;
  for (int i = 0; i < ndim(); ++i) size *= axis_size(i);
  return size;
}

static void check_axis(const DeviceMesh& mesh, int axis) {
  if (axis < 0 || axis >= mesh.ndim()) {
    fail(mesh, ": axis is ", axis, ", expected one of its ", mesh.ndim(), " axes");
  }
}

const std::string& DeviceMesh::axis_name(int axis) const {
  check_axis(*this, axis);
  return grid_of(body_).axes()[static_cast<size_t>(root_axis(axis))].name;
}

int DeviceMesh::axis_size(int axis) const {
  check_axis(*this, axis);
  return grid_of(body_).size(root_axis(axis));
}

int DeviceMesh::axis(std::string_view name) const {
  for (int i = 0; i < ndim(); ++i) {
    if (axis_name(i) == name) return i;
  }
  fail(*this, ": axis ", in_quotes(name), " does not exist");
}

int DeviceMesh::coordinate(int axis) const {
  check_axis(*this, axis);
  return grid_of(body_).coordinates()[static_cast<size_t>(root_axis(axis))];
}

int DeviceMesh::rank() const { return grid_of(body_).rank(); }

Communicator DeviceMesh::communicator() const {
  Axes axes;
  for (int axis : axes_) axes.push_back(axis);
  return grid_of(body_).group(axes);
}

CommunicatorTraffic DeviceMesh::traffic() const { return grid_of(body_).traffic(); }

DeviceMesh DeviceMesh::root() const { return DeviceMesh(body_).on(device_type_); }

DeviceMesh DeviceMesh::view(std::span<const std::string_view> names) const {
  if (names.empty()) fail(*this, ": number of axes of a view is 0, expected at least 1");
  DeviceMesh view;
  view.body_ = body_;
  view.device_type_ = device_type_;
  grid_of(body_);
  for (std::string_view name : names) {
    int chosen = root_axis(axis(name));
    if (std::ranges::find(view.axes_, chosen) != view.axes_.end()) {
      fail(*this, ": axis ", in_quotes(name), " of a view is named twice, expected once");
    }
    view.axes_.push_back(chosen);
  }
  return view;
}

std::ostream& operator<<(std::ostream& out, const DeviceMesh& mesh) {
  if (!mesh) return out << "no mesh";
  std::vector<MeshAxis> axes;
  for (int i = 0; i < mesh.ndim(); ++i) axes.push_back({mesh.axis_name(i), mesh.axis_size(i)});
  return out << printed(axes);
}

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
  // Unless all ranks have the grid, all make a new one: its construction is collective.
  if (ranks.all_reduce_number(grid != nullptr, ReduceOp::min) == 0) {
    grid = std::make_shared<MeshGrid>(ranks, std::move(axes), agreed_costs(ranks));
    meshes.grids.insert(meshes.grids.begin(), grid);
  }
  if (grid->body) {
    if (auto body = grid->body->weak_from_this().lock()) return body;
  }
  return owned(new MeshBody(std::move(grid)));
}

}  // namespace weft

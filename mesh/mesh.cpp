// SPDX-License-Identifier: Apache-2.0
#include "weft/mesh.h"

#include <functional>
#include <numeric>
#include <ostream>
#include <range/v3/numeric/accumulate.hpp>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/cartesian_product.hpp>
#include <range/v3/view/iota.hpp>
#include <range/v3/view/transform.hpp>

#include "mesh/mesh_body.h"
#include "src/comm/transport.h"
#include "weft/error.h"
#include "weft/extend/end_on_thread.h"
#include "weft/extend/hash.h"

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
  *this = DeviceMesh(mesh_body_for(ranks, std::move(axes))).on(device_type);
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
  return ranges::accumulate(axes_, 1, std::multiplies(),
                            [&](int axis) { return grid_of(body_).size(axis); });
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
    WEFT_STATIC_TLS thread_local const auto meshes = std::make_unique<RankMeshes>();
    return *meshes;
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

/// Returns whether some rank lacks the grid. Collective.
static bool is_missing_on_some(const Communicator& ranks, const std::shared_ptr<MeshGrid>& grid) {
  try {
    return ranks.all_reduce_number(grid != nullptr, ReduceOp::min) == 0;
  } catch (const CommError& error) {
    const std::string text = error.what();
    if (text.find(" did not call it") == text.npos) throw;
    const std::string cure = " make the mesh, and world.split groups those that work together";
    throw CommError(concat("mesh: ", text, "; all ranks of ", in_quotes(ranks.name()), cure),
                    error.rank(), error.operation(), error.sequence());
  }
}

std::shared_ptr<MeshBody> mesh_body_for(const Communicator& ranks, std::vector<MeshAxis> axes) {
  const RankThread::Call call(*ranks.transport()->rank_thread(), "mesh");
  RankMeshes& meshes = RankMeshes::current();
  meshes.adopted.clear();
  meshes.end->reap();
  std::shared_ptr<MeshGrid> grid = known_grid(ranks, axes);
  // Unless all ranks have the grid, all make a new one: its construction is collective.
  if (is_missing_on_some(ranks, grid)) {
    grid = std::make_shared<MeshGrid>(ranks, std::move(axes), agreed_costs(ranks));
    meshes.grids.insert(meshes.grids.begin(), grid);
  }
  if (grid->body) {
    if (auto body = grid->body->weak_from_this().lock()) return body;
  }
  return owned(new MeshBody(std::move(grid)));
}

namespace views = ranges::views;

MeshGrid::MeshGrid(Communicator ranks, std::vector<MeshAxis> axes, const CostModel& costs)
    : ranks_(std::move(ranks)), axes_(std::move(axes)), rank_(ranks_.rank()), costs_(costs) {
  thread_ = ranks_.transport()->rank_thread().get();
  int stride = 1;
  hash_ = mixed(0, axes_.size());
  for (size_t axis = axes_.size(); axis-- > 0;) {
    sizes_[axis] = axes_[axis].size;
    strides_[axis] = stride;
    stride *= axes_[axis].size;
    hash_ = mixed(hash_, static_cast<uint64_t>(axes_[axis].size));
    for (char letter : axes_[axis].name) hash_ = mixed(hash_, static_cast<uint8_t>(letter));
  }
  coordinates_ = coordinates_of(rank_);
  in_memory_ = ranks_.transport()->in_memory(DeviceKind::cpu);
  in_gpu_memory_ = ranks_.transport()->in_memory(DeviceKind::cuda);
  hosts_ = views::ints(0, ranks_.size()) |
           views::transform([&](int rank) { return ranks_.transport()->host_of(rank); }) |
           ranges::to<std::vector>();
  for (int axis = 0; axis < ndim(); ++axis) group({axis});
}

int MeshGrid::size(const Axes& axes) const {
  return ranges::accumulate(axes, 1, std::multiplies(), [&](int axis) { return size(axis); });
}

std::string MeshGrid::names(const Axes& axes) const {
  return listed(
      axes, [&](int axis) { return axes_[static_cast<size_t>(axis)].name; }, "+");
}

Coordinates MeshGrid::coordinates_of(int rank) const {
  Coordinates coordinates{};
  for (size_t axis = 0; axis < axes_.size(); ++axis) {
    coordinates[axis] = rank / strides_[axis] % sizes_[axis];
  }
  return coordinates;
}

int MeshGrid::rank_at(const Coordinates& coordinates) const {
  return std::inner_product(coordinates.begin(), coordinates.end(), strides_.begin(), 0);
}

std::vector<int> MeshGrid::members(const Axes& axes, const Coordinates& coordinates) const {
  Coordinates first = coordinates;
  for (int axis : axes) first[static_cast<size_t>(axis)] = 0;
  std::vector<int> members{rank_at(first)};
  for (int axis : axes) {
    const int stride = strides_[static_cast<size_t>(axis)];
    members = views::cartesian_product(members, views::ints(0, size(axis))) |
              views::transform(
                  [&](const auto& at) { return std::get<0>(at) + std::get<1>(at) * stride; }) |
              ranges::to<std::vector>();
  }
  return members;
}

Communicator MeshGrid::group(const Axes& axes) {
  std::vector<int> key(axes.begin(), axes.end());
  if (auto found = groups_.find(key); found != groups_.end()) return found->second;
  std::vector<int> ranks = members(axes, coordinates_);
  bool is_whole = static_cast<int>(ranks.size()) == ranks_.size() && std::ranges::is_sorted(ranks);
  const std::string name = axes.empty() ? "self" : names(axes);
  Communicator made = is_whole ? ranks_ : ranks_.subgroup(ranks, concat(ranks_.name(), '/', name));
  return groups_.emplace(std::move(key), std::move(made)).first->second;
}

void MeshGrid::claim(uint64_t hash, std::string_view words) const {
  ranks_.transport()->claim(hash, words);
  for (const auto& [axes, group] : groups_) {
    if (group != ranks_) group.transport()->claim(hash, words);
  }
}

CommunicatorTraffic MeshGrid::traffic() const {
  CommunicatorTraffic sum = ranks_.traffic();
  for (const auto& [axes, group] : groups_) {
    if (group == ranks_) continue;
    sum.bytes += group.traffic().bytes;
    sum.collectives += group.traffic().collectives;
  }
  return sum;
}

bool MeshGrid::crosses_hosts(const Axes& axes) const {
  uint8_t& known = crossing_[axes.mask()];
  if (known) return known == 2;
  bool crosses = false;
  for (int rank = 0; rank < static_cast<int>(hosts_.size()) && !crosses; ++rank) {
    Coordinates first = coordinates_of(rank);
    for (int axis : axes) first[static_cast<size_t>(axis)] = 0;
    crosses = hosts_[static_cast<size_t>(rank)] != hosts_[static_cast<size_t>(rank_at(first))];
  }
  known = crosses ? 2 : 1;
  return crosses;
}

ShardingBody MeshGrid::make_body(const Pattern& pattern) {
  bool replicated = std::ranges::all_of(pattern.placements(), &Placement::is_replicate);
  return {.grid = this,
          .pattern = pattern,
          .hash = mixed(hash_, hash_of(pattern)),
          .has_partial = !pattern.partial_axes().empty(),
          .is_replicated = replicated};
}

Sharding MeshGrid::intern_sized(const Pattern& pattern) {
  const auto drop = [table = sized_](const ShardingBody* last) {
    const std::unique_ptr<const ShardingBody> gone(last);
    const std::lock_guard lock(table->mutex);
    const auto found = table->bodies.find(gone->pattern);
    // Another thread may have made a new body of the pattern.
    if (found != table->bodies.end() && found->second.expired()) table->bodies.erase(found);
  };
  std::shared_ptr<const ShardingBody> kept;
  std::unique_lock lock(sized_->mutex);
  kept = sized_->bodies[pattern].lock();
  if (kept) return Sharding(std::move(kept));
  lock.unlock();  // `drop` runs where memory is exhausted
  kept = {new ShardingBody(make_body(pattern)), drop};
  lock.lock();
  sized_->bodies[pattern] = kept;
  return Sharding(std::move(kept));
}

Sharding MeshGrid::intern(const Pattern& pattern) {
  const RankThread::Call call(thread(), "sharding");
  if (pattern.has_sizes()) {
    const Pattern kept = normalised(pattern, sizes());
    return kept.has_sizes() ? intern_sized(kept) : intern(kept);
  }
  auto found = shardings_.find(pattern);
  if (found == shardings_.end()) found = shardings_.emplace(pattern, make_body(pattern)).first;
  return Sharding({std::shared_ptr<void>(), &found->second});
}

size_t MeshGrid::shardings() const {
  const std::lock_guard lock(sized_->mutex);
  return shardings_.size() + sized_->bodies.size();
}

}  // namespace weft

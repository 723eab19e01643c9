// SPDX-License-Identifier: Apache-2.0
#include "mesh/grid.h"

#include <functional>
#include <range/v3/numeric/accumulate.hpp>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/cartesian_product.hpp>
#include <range/v3/view/iota.hpp>
#include <range/v3/view/transform.hpp>

#include "src/comm/transport.h"
#include "weft/extend/hash.h"

namespace weft {

namespace views = ranges::views;

MeshGrid::MeshGrid(Communicator ranks, std::vector<MeshAxis> axes, const CostModel& costs)
    : ranks_(std::move(ranks)), axes_(std::move(axes)), rank_(ranks_.rank()), costs_(costs) {
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

Coordinates MeshGrid::coordinates_of(int rank) const {
  Coordinates coordinates{};
  for (size_t axis = 0; axis < axes_.size(); ++axis) {
    coordinates[axis] = rank / strides_[axis] % sizes_[axis];
  }
  return coordinates;
}

int MeshGrid::rank_at(const Coordinates& coordinates) const {
  int rank = 0;
  for (size_t axis = 0; axis < axes_.size(); ++axis) rank += coordinates[axis] * strides_[axis];
  return rank;
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
  std::string name = ranks_.name();
  for (size_t i = 0; i < key.size(); ++i) {
    name += (i ? '+' : '/') + axes_[static_cast<size_t>(key[i])].name;
  }
  Communicator made = is_whole ? ranks_ : ranks_.subgroup(ranks, name);
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

void SizedShardings::drop(const ShardingBody* body) {
  // The table outlives the lock, and a body that leaves it: both may hold its last handle.
  const std::shared_ptr<SizedShardings> table = body->owner;
  Body last;
  const std::lock_guard lock(table->mutex_);
  if (--body->handles > 0) return;
  const auto found = table->bodies_.find(body->pattern);
  last = std::move(found->second);
  table->bodies_.erase(found);
}

std::unique_ptr<ShardingBody> MeshGrid::make_body(const Pattern& pattern) {
  std::span<const Placement> placements = pattern.placements();
  bool replicated =
      std::ranges::all_of(placements, [](const Placement& at) { return at.is_replicate(); });
  return std::unique_ptr<ShardingBody>(
      new ShardingBody{.grid = this,
                       .pattern = pattern,
                       .hash = mixed(hash_, hash_of(pattern)),
                       .has_partial = !pattern.partial_axes().empty(),
                       .is_replicated = replicated,
                       .offsets = PartOffsets(pattern)});
}

Sharding MeshGrid::intern(const Pattern& pattern) {
  if (pattern.has_sizes()) {
    const Pattern kept = normalised(pattern, sizes());
    if (!kept.has_sizes()) return intern(kept);
    return {sized_->take(kept,
                         [&] {
                           auto made = make_body(kept);
                           made->owner = sized_;
                           return made;
                         }),
            true};
  }
  std::unique_ptr<ShardingBody>& entry = shardings_[pattern];
  if (!entry) entry = make_body(pattern);
  return {entry.get(), false};
}

}  // namespace weft

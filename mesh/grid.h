// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weft/export.h"
#include "weft/extend/pattern.h"
#include "weft/mesh.h"
#include "weft/sharding.h"

namespace weft {

/// Cost of a link between ranks in the alpha-beta model.
struct LinkCost {
  double seconds_per_message;
  double seconds_per_byte;
};

/// The planner's model of the machine: one link per topology level, and copies within a rank.
struct CostModel {
  LinkCost within_host;
  LinkCost across_hosts;
  double seconds_per_copied_byte;
};

class MeshGrid;
class RankThread;

/// Returns the assumed costs of the links of a communicator.
CostModel cost_model_of(const Communicator& ranks);
/// Returns rank 0's costs on all ranks: ranks with different costs would make different plans.
/// Collective.
CostModel agreed_costs(const Communicator& ranks);
/// Returns the assumed costs of GPUs that exchange their memory by NCCL.
CostModel nccl_cost_model();

/// The interned data behind a Sharding.
struct ShardingBody {
  MeshGrid* grid;
  Pattern pattern;
  /// Hash of the content; equal on all ranks.
  uint64_t hash;
  bool has_partial;
  bool is_replicated;
};

struct PatternHash {
  size_t operator()(const Pattern& pattern) const { return hash_of(pattern); }
};

/// The shardings with explicit sizes of one mesh. Sizes that depend on data are ever new, so that a
/// sharding is kept until its last handle is gone, which any thread may drop.
struct SizedShardings {
  std::mutex mutex;
  std::unordered_map<Pattern, std::weak_ptr<const ShardingBody>, PatternHash> bodies;
};

/// The ranks of a mesh in their grid: coordinates, groups along axes, link costs, and the interned
/// shardings. Layouts keep it alive. The tables that hold layouts (MeshBody) are not part of it, so
/// there is no reference cycle.
class MeshGrid : public std::enable_shared_from_this<MeshGrid>, NotCopied {
 public:
  /// Collective: makes the communicators of the axes.
  MeshGrid(Communicator ranks, std::vector<MeshAxis> axes, const CostModel& costs);

  const Communicator& ranks() const { return ranks_; }
  /// The thread that may use the mesh and its tables.
  RankThread& thread() const { return *thread_; }
  int ndim() const { return static_cast<int>(axes_.size()); }
  const std::vector<MeshAxis>& axes() const { return axes_; }
  std::span<const int> sizes() const { return {sizes_.data(), axes_.size()}; }
  int size(int axis) const { return sizes_[static_cast<size_t>(axis)]; }
  /// Number of ranks along all of `axes`.
  int size(const Axes& axes) const;
  /// Names of axes, joined by "+".
  std::string names(const Axes& axes) const;
  Axes all_axes() const {
    return axes_where(ndim(), [](int) { return true; });
  }
  /// True for equal communicators and axes.
  bool is_same(const MeshGrid& other) const {
    return ranks_ == other.ranks_ && axes_ == other.axes_;
  }

  /// Rank and coordinates of this rank.
  int rank() const { return rank_; }
  const Coordinates& coordinates() const { return coordinates_; }
  Coordinates coordinates_of(int rank) const;
  int rank_at(const Coordinates& coordinates) const;
  /// The ranks that differ from `coordinates` along `axes` only; the last of `axes` varies fastest.
  std::vector<int> members(const Axes& axes, const Coordinates& coordinates) const;

  /// This rank's group along `axes`, in the order of `members`. The first use makes it,
  /// collectively by its members.
  Communicator group(const Axes& axes);
  /// Claims to all ranks of the mesh that these values are equal on them; see Transport::claim.
  void claim(uint64_t hash, std::string_view words) const;
  /// Counts the claims about things of one kind, e.g. of one layout.
  uint64_t next_claim_of(uint64_t kind) {
    // Layouts that depend on data are ever new.
    if (claims_.size() >= 4096) claims_.clear();
    return claims_[kind]++;
  }
  /// Traffic over all communicators of the mesh.
  CommunicatorTraffic traffic() const;

  const CostModel& costs(DeviceKind kind) const {
    return kind == DeviceKind::cuda && !in_gpu_memory_ ? gpu_costs_ : costs_;
  }
  /// True when some group along `axes` has members on two hosts.
  bool crosses_hosts(const Axes& axes) const;
  const LinkCost& link(const Axes& axes, DeviceKind kind = DeviceKind::cpu) const {
    return crosses_hosts(axes) ? costs(kind).across_hosts : costs(kind).within_host;
  }
  /// True when ranks can read each other's memory on devices of that kind.
  bool in_memory(DeviceKind kind) const {
    return kind == DeviceKind::cuda ? in_gpu_memory_ : in_memory_;
  }
  /// Host of each rank.
  const std::vector<int>& hosts() const { return hosts_; }

  /// Returns the sharding of that pattern; std::invalid_argument for explicit sizes that do not fit
  /// the axes.
  Sharding intern(const Pattern& pattern);
  size_t shardings() const;

  /// The tables in use, or null; see body_of.
  class MeshBody* body = nullptr;

 private:
  ShardingBody make_body(const Pattern& pattern);
  Sharding intern_sized(const Pattern& pattern);

  Communicator ranks_;
  RankThread* thread_;
  std::vector<MeshAxis> axes_;
  std::array<int, kMaxAxes> sizes_{};
  /// 0 beyond the last axis.
  std::array<int, kMaxAxes> strides_{};
  int rank_ = 0;
  Coordinates coordinates_{};
  CostModel costs_;
  CostModel gpu_costs_ = nccl_cost_model();
  bool in_memory_ = false, in_gpu_memory_ = false;
  std::vector<int> hosts_;
  uint64_t hash_ = 0;
  /// By mask of axes. 0: not known yet, 1: within a host, 2: across hosts.
  mutable std::array<uint8_t, 1u << kMaxAxes> crossing_{};
  std::map<std::vector<int>, Communicator> groups_;
  std::unordered_map<uint64_t, uint64_t> claims_;
  std::unordered_map<Pattern, ShardingBody, PatternHash> shardings_;
  std::shared_ptr<SizedShardings> sized_ = std::make_shared<SizedShardings>();
};

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "mesh/axes.h"
#include "weft/block.h"
#include "weft/extend/cuts.h"
#include "weft/placement.h"

namespace weft {

/// The content of a sharding as a small value: a placement per axis and, for axes that cut the same
/// dim, their order. The planner searches over patterns.
class Pattern {
 public:
  Pattern() = default;
  /// Replicates on all axes.
  explicit Pattern(int axes) : axes_(static_cast<uint8_t>(axes)) {}

  int axes() const { return axes_; }
  const Placement& operator[](int axis) const { return placements_[static_cast<size_t>(axis)]; }
  std::span<const Placement> placements() const { return {placements_.data(), axes_}; }
  /// For a Shard: how many axes cut its dim before this one.
  int depth(int axis) const { return depth_[static_cast<size_t>(axis)]; }
  /// Axes that cut `dim`, outermost first.
  Axes cutting(int dim) const;
  bool is_innermost(int axis) const;
  bool has_partial() const;
  /// The axes that are Partial, in mesh order.
  Axes partial_axes() const;

  /// Makes a Shard the innermost cut of its dim. Axes inside the axis' former cut move outwards.
  void set(int axis, Placement placement);
  /// Makes `axes`, outermost first, the axes that cut `dim`.
  void set_order(int dim, const Axes& axes);

  bool operator==(const Pattern&) const = default;

 private:
  std::array<Placement, kMaxAxes> placements_{};
  std::array<uint8_t, kMaxAxes> depth_{};
  uint8_t axes_ = 0;
};

/// Returns a hash of the content; equal on all ranks.
uint64_t hash_of(const Pattern& pattern);

/// Returns the part of `shape` at `coordinates` of a mesh with axes of these sizes.
Box box_of(const Pattern& pattern, std::span<const int> sizes, const Shape& shape,
           std::span<const int> coordinates);

inline uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
  return hash ^ (hash >> 32);
}

}  // namespace weft

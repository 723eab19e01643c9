// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/pattern.h"

#include "weft/extend/hash.h"

namespace weft {

Axes Pattern::cutting(int dim) const {
  Axes found;
  for (int level = 0; level < axes_; ++level) {
    int before = found.size();
    for (int axis = 0; axis < axes_; ++axis) {
      if ((*this)[axis].is_shard(dim) && depth(axis) == level) found.push_back(axis);
    }
    if (found.size() == before) break;
  }
  return found;
}

bool Pattern::is_innermost(int axis) const {
  for (int other = 0; other < axes_; ++other) {
    if ((*this)[other].is_shard((*this)[axis].dim()) && depth(other) > depth(axis)) return false;
  }
  return (*this)[axis].is_shard();
}

Axes Pattern::partial_axes() const {
  Axes found;
  for (int axis = 0; axis < axes_; ++axis) {
    if ((*this)[axis].is_partial()) found.push_back(axis);
  }
  return found;
}

void Pattern::set(int axis, Placement placement) {
  auto at = static_cast<size_t>(axis);
  const Placement before = placements_[at];
  uint8_t cuts = 0;
  for (size_t other = 0; other < axes_; ++other) {
    if (other == at || !placements_[other].is_shard()) continue;
    if (before.is_shard(placements_[other].dim()) && depth_[other] > depth_[at]) --depth_[other];
    if (placement.is_shard(placements_[other].dim())) ++cuts;
  }
  placements_[at] = placement;
  depth_[at] = cuts;
}

void Pattern::set_order(int dim, const Axes& axes) {
  for (int level = 0; level < axes.size(); ++level) {
    placements_[static_cast<size_t>(axes[level])] = Shard{dim};
    depth_[static_cast<size_t>(axes[level])] = static_cast<uint8_t>(level);
  }
}

uint64_t hash_of(const Pattern& pattern) {
  uint64_t hash = static_cast<uint64_t>(pattern.axes());
  for (int axis = 0; axis < pattern.axes(); ++axis) {
    const Placement& placement = pattern[axis];
    uint64_t word = placement.is_shard() ? 1 : placement.is_partial() ? 2 : 0;
    word = word << 8 | static_cast<uint8_t>(placement.dim());
    word = word << 8 | static_cast<uint8_t>(placement.op());
    word = word << 8 | static_cast<uint8_t>(pattern.depth(axis));
    hash = mixed(hash, word);
  }
  return hash;
}

Box box_of(const Pattern& pattern, std::span<const int> sizes, const Shape& shape,
           std::span<const int> coordinates) {
  Box box{Dims::filled(shape.ndim(), 0), shape};
  for (int level = 0, cuts = 1; cuts > 0; ++level) {
    cuts = 0;
    for (int axis = 0; axis < pattern.axes(); ++axis) {
      if (!pattern[axis].is_shard() || pattern.depth(axis) != level) continue;
      int dim = pattern[axis].dim();
      auto at = static_cast<size_t>(axis);
      Chunk chunk = chunk_of(box.shape[dim], sizes[at], coordinates[at]);
      box.offset[dim] += chunk.offset;
      box.shape[dim] = chunk.length;
      ++cuts;
    }
  }
  return box;
}

Box box_of(const Pattern& pattern, std::span<const int> sizes, const Shape& shape, int rank) {
  Coordinates coordinates{};
  for (size_t axis = sizes.size(); axis-- > 0; rank /= sizes[axis]) {
    coordinates[axis] = rank % sizes[axis];
  }
  return box_of(pattern, sizes, shape, coordinates);
}

Box overlap(const Box& a, const Box& b) {
  Box both = a;
  for (int d = 0; d < a.shape.ndim(); ++d) {
    int64_t begin = std::max(a.offset[d], b.offset[d]);
    int64_t end = std::min(a.offset[d] + a.shape[d], b.offset[d] + b.shape[d]);
    both.offset[d] = begin;
    both.shape[d] = std::max<int64_t>(0, end - begin);
  }
  return both;
}

Box relative(const Box& box, const Box& frame) {
  Box moved = box;
  for (int d = 0; d < box.shape.ndim(); ++d) moved.offset[d] -= frame.offset[d];
  return moved;
}

bool contains(const Box& outer, const Box& inner) {
  return inner.shape.product() == overlap(outer, inner).shape.product();
}

}  // namespace weft

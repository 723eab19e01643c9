// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/pattern.h"

#include "mesh/grid.h"
#include "weft/error.h"
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

bool Pattern::operator==(const Pattern& other) const {
  return std::ranges::equal(placements(), other.placements()) && depth_ == other.depth_;
}

bool Pattern::is_innermost(int axis) const {
  for (int other = 0; other < axes_; ++other) {
    if ((*this)[other].is_shard((*this)[axis].dim()) && depth(other) > depth(axis)) return false;
  }
  return (*this)[axis].is_shard();
}

Axes Pattern::partial_axes() const {
  return axes_where(axes_, [&](int axis) { return (*this)[axis].is_partial(); });
}

void Pattern::set(int axis, Placement placement) {
  auto at = static_cast<size_t>(axis);
  const int left = placements_[at].dim();
  uint8_t cuts = 0;
  for (size_t other = 0; other < axes_; ++other) {
    if (other == at || !placements_[other].is_shard()) continue;
    if (placements_[other].is_shard(left) && depth_[other] > depth_[at]) {
      --depth_[other];
      if (placements_[other].has_sizes()) placements_[other] = Shard{placements_[other].dim()};
    }
    if (placement.is_shard(placements_[other].dim())) ++cuts;
  }
  placements_[at] = std::move(placement);
  depth_[at] = cuts;
}

bool Pattern::has_sizes() const { return std::ranges::any_of(placements(), &Placement::has_sizes); }

void Pattern::set_sizes(int axis, std::vector<int64_t> sizes) {
  Placement& placement = placements_[static_cast<size_t>(axis)];
  placement = Shard{placement.dim(), std::move(sizes)};
}

void Pattern::drop_trivial(int axis) {
  const Pattern before = *this;
  set(axis, Replicate());
  for (int other = 0; other < axes_; ++other) {
    if (other != axis) placements_[static_cast<size_t>(other)] = before[other];
  }
}

void Pattern::set_order(int dim, const Axes& axes) {
  for (int level = 0; level < axes.size(); ++level) {
    Placement& placement = placements_[static_cast<size_t>(axes[level])];
    if (!placement.is_shard(dim)) placement = Shard{dim};
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
    for (const int64_t size : placement.sizes()) hash = mixed(hash, static_cast<uint64_t>(size));
  }
  return hash;
}

int64_t size_by_parts(const Pattern& pattern, int dim) {
  for (const int axis : pattern.cutting(dim)) {
    if (pattern[axis].has_sizes()) return pattern[axis].begins().back();
  }
  return -1;
}

/// The lengths of chunks that cut each of `outer` into `parts`.
static std::vector<int64_t> chunks_of(std::span<const int64_t> outer, int parts) {
  std::vector<int64_t> lengths;
  for (const int64_t length : outer) {
    for (int i = 0; i < parts; ++i) lengths.push_back(chunk_of(length, parts, i).length);
  }
  return lengths;
}

static void check_parts(const Placement& placement, std::span<const int64_t> outer, int parts) {
  const size_t size = placement.sizes().size(),
               expected = outer.size() * static_cast<size_t>(parts);
  if (size != expected) {
    fail("sharding: number of sizes of ", placement, " is ", size, ", expected ", expected);
  }
  for (size_t i = 0; i < outer.size(); ++i) {
    const int64_t* begin = placement.begins().data() + i * static_cast<size_t>(parts);
    const int64_t sum = begin[parts] - begin[0];
    if (sum == outer[i]) continue;
    fail("sharding: the sizes of ", placement, " add up to ", sum, " in part ", i,
         " of the axes outside, expected ", outer[i]);
  }
}

std::vector<std::vector<int64_t>> sizes_of_parts(const Pattern& pattern, std::span<const int> sizes,
                                                 int dim, int64_t size) {
  std::vector<std::vector<int64_t>> levels;
  std::vector<int64_t> outer{size};
  for (const int axis : pattern.cutting(dim)) {
    const std::span<const int64_t> given = pattern[axis].sizes();
    if (given.empty()) {
      outer = chunks_of(outer, sizes[static_cast<size_t>(axis)]);
    } else {
      check_parts(pattern[axis], outer, sizes[static_cast<size_t>(axis)]);
      outer.assign(given.begin(), given.end());
    }
    levels.push_back(outer);
  }
  return levels;
}

Pattern normalised(Pattern pattern, std::span<const int> sizes) {
  for (int dim = 0; dim < kMaxDims && pattern.has_sizes(); ++dim) {
    const int64_t size = size_by_parts(pattern, dim);
    if (size < 0) continue;
    std::vector<int64_t> outer{size};
    size_t level = 0;
    const auto parts = sizes_of_parts(pattern, sizes, dim, size);
    for (const int axis : pattern.cutting(dim)) {
      if (parts[level] == chunks_of(outer, sizes[static_cast<size_t>(axis)])) {
        pattern.set_sizes(axis, {});
      }
      outer = parts[level++];
    }
  }
  return pattern;
}

/// Part `index` of those that begin with number `first` along an axis with explicit sizes.
static Chunk part_of(const Placement& placement, int64_t first, int index) {
  const int64_t* begins = placement.begins().data() + first;
  return {begins[index] - begins[0], begins[index + 1] - begins[index]};
}

Box box_of(const Pattern& pattern, std::span<const int> sizes, const Shape& shape,
           std::span<const int> coordinates) {
  Box box{Dims::filled(shape.ndim(), 0), shape};
  // For each dim, the number of the part, among those of all axes so far.
  Dims part = Dims::filled(shape.ndim(), 0);
  for (int level = 0, cuts = 1; cuts > 0; ++level) {
    cuts = 0;
    for (int axis = 0; axis < pattern.axes(); ++axis) {
      const Placement& placement = pattern[axis];
      if (!placement.is_shard() || pattern.depth(axis) != level) continue;
      int dim = placement.dim();
      auto at = static_cast<size_t>(axis);
      part[dim] *= sizes[at];
      Chunk chunk = placement.has_sizes() ? part_of(placement, part[dim], coordinates[at])
                                          : chunk_of(box.shape[dim], sizes[at], coordinates[at]);
      part[dim] += coordinates[at];
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

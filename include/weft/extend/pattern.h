// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "weft/block.h"
#include "weft/export.h"
#include "weft/placement.h"

namespace weft {

/// The maximum number of axes of a mesh.
inline constexpr int kMaxAxes = 8;

/// A position in a mesh: one coordinate per axis.
using Coordinates = std::array<int, kMaxAxes>;

/// A short ordered list of different axes of a mesh, stored inline.
class Axes {
 public:
  Axes() = default;
  Axes(std::initializer_list<int> axes) {
    for (int axis : axes) push_back(axis);
  }

  void push_back(int axis) { values_[count_++] = static_cast<int8_t>(axis); }
  int size() const { return count_; }
  bool empty() const { return count_ == 0; }
  int operator[](int i) const { return values_[static_cast<size_t>(i)]; }
  int back() const { return values_[count_ - size_t{1}]; }
  const int8_t* begin() const { return values_.data(); }
  const int8_t* end() const { return values_.data() + count_; }
  bool contains(int axis) const { return std::find(begin(), end(), axis) != end(); }
  /// A bit mask with one bit per axis.
  unsigned mask() const {
    unsigned mask = 0;
    for (int axis : *this) mask |= 1u << axis;
    return mask;
  }
  bool operator==(const Axes&) const = default;

 private:
  std::array<int8_t, kMaxAxes> values_{};
  uint8_t count_ = 0;
};

/// Returns the axes below `count` for which `is_wanted(axis)` is true, in mesh order.
template <class IsWanted> Axes axes_where(int count, IsWanted is_wanted) {
  Axes axes;
  for (int axis = 0; axis < count; ++axis) {
    if (is_wanted(axis)) axes.push_back(axis);
  }
  return axes;
}

/// The content of a sharding as a value: a placement per axis and, for axes that cut the same dim,
/// their order. It belongs to no mesh: the planner searches over patterns, and a checkpoint stores
/// them.
class WEFT_API Pattern {
 public:
  Pattern() = default;
  /// Replicates on all axes.
  explicit Pattern(int axes) : axes_(static_cast<uint8_t>(axes)) {}

  int axes() const { return axes_; }
  const Placement& operator[](int axis) const { return placements_[static_cast<size_t>(axis)]; }
  std::span<const Placement> placements() const { return {placements_.data(), axes_}; }
  /// For a Shard: how many axes cut its factor of the dim before this one.
  int depth(int axis) const { return depth_[static_cast<size_t>(axis)]; }
  /// Axes that cut `dim`, those of outer factors first, for each factor outermost first.
  Axes cutting(int dim) const;
  /// Axes that cut the factor of `dim` inside of `outer`, outermost first.
  Axes cutting(int dim, int64_t outer) const;
  /// True when some axis cuts an inner factor of a dim.
  bool has_inner() const;
  bool is_innermost(int axis) const;
  /// The axes that are Partial, in mesh order.
  Axes partial_axes() const;

  /// True when the parts along some axis have explicit sizes.
  bool has_sizes() const;

  /// Makes a Shard the innermost cut of its factor of the dim. Axes inside the axis' former cut
  /// move outwards and lose their explicit sizes.
  void set(int axis, Placement placement);
  /// Makes `axes`, outermost first, the axes that cut that factor of `dim`. Those that cut it keep
  /// their sizes.
  void set_order(int dim, const Axes& axes, int64_t outer = 1);
  /// Replaces the Shard on an axis by one of the same factor at the same depth.
  void set_sizes(int axis, std::vector<int64_t> sizes);
  /// Replicates on an axis of one device: the parts along other axes stay.
  void drop_trivial(int axis);

  bool operator==(const Pattern& other) const;

 private:
  std::array<Placement, kMaxAxes> placements_{};
  std::array<uint8_t, kMaxAxes> depth_{};
  uint8_t axes_ = 0;
};

/// Returns a hash of the content; equal on all ranks.
uint64_t hash_of(const Pattern& pattern);

/// Returns `pattern` without explicit sizes that are those of chunks, on a mesh with axes of these
/// sizes. std::invalid_argument when a Shard has another number of sizes than parts, or when they
/// do not add up to the parts that they divide.
WEFT_API Pattern normalised(Pattern pattern, std::span<const int> sizes);
/// Returns how many elements the explicit sizes of that factor of `dim` add up to; -1 without any.
WEFT_API int64_t size_by_parts(const Pattern& pattern, int dim, int64_t outer = 1);

/// Returns the sizes of the parts of a dim of `size` elements along each axis that cuts it,
/// outermost first, on a mesh with axes of these sizes; those of an inner axis divide the parts of
/// the axis outside of it, one after the other. With `outer`, those of the dim's factor inside of
/// it, which has `size` elements.
WEFT_API std::vector<std::vector<int64_t>> sizes_of_parts(const Pattern& pattern,
                                                          std::span<const int> sizes, int dim,
                                                          int64_t size, int64_t outer = 1);

/// Part `index` of `size` elements cut into `parts`, as torch.chunk cuts: parts have ceil(size /
/// parts) elements, the last ones fewer or none.
struct Chunk {
  int64_t offset;
  int64_t length;
};
inline Chunk chunk_of(int64_t size, int parts, int index) {
  const int64_t length = (size + parts - 1) / parts;
  const int64_t begin = std::min(size, length * index);
  return {begin, std::min(length, size - begin)};
}

/// A shape with each dim divided into factors such that every cut is one of a whole factor: what a
/// rank holds is then a box.
struct Factoring {
  Shape shape;
  /// The index of each dim's first factor.
  std::vector<int> first;
  /// The given patterns, with cuts of these factors.
  std::vector<Pattern> patterns;
};
/// Returns the least factors that suit all the patterns, on a mesh with axes of these sizes;
/// nullopt where there are none: parts of one cut are not multiples of the elements inside of
/// another.
WEFT_API std::optional<Factoring> factored(const Shape& shape, std::span<const Pattern> patterns,
                                           std::span<const int> sizes);

/// Returns the part of `shape` at `coordinates` of a mesh with axes of these sizes. A dim of which
/// an inner factor is cut has the parts' position if they were stored one after the other: parts
/// are disjoint and cover the dim, but do not hold its elements in order.
WEFT_API Box box_of(const Pattern& pattern, std::span<const int> sizes, const Shape& shape,
                    std::span<const int> coordinates);
/// The same for rank `rank`; the last axis varies fastest.
WEFT_API Box box_of(const Pattern& pattern, std::span<const int> sizes, const Shape& shape,
                    int rank);

/// Returns the intersection of two boxes.
WEFT_API Box overlap(const Box& a, const Box& b);
/// Returns `box` relative to the first element of `frame`.
WEFT_API Box relative(const Box& box, const Box& frame);
/// True when `outer` contains every element of `inner`.
WEFT_API bool contains(const Box& outer, const Box& inner);

}  // namespace weft

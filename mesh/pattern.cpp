// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/pattern.h"

#include <set>

#include "mesh/grid.h"
#include "weft/error.h"
#include "weft/extend/hash.h"

namespace weft {

Axes Pattern::cutting(int dim) const {
  const Axes all = axes_where(axes_, [&](int axis) { return (*this)[axis].is_shard(dim); });
  const auto place = [&](int axis) { return std::pair((*this)[axis].outer(), depth(axis)); };
  Axes found;
  while (found.size() < all.size()) {
    int next = -1;
    for (const int axis : all) {
      if (!found.contains(axis) && (next < 0 || place(axis) < place(next))) next = axis;
    }
    found.push_back(next);
  }
  return found;
}

Axes Pattern::cutting(int dim, int64_t outer) const {
  Axes found;
  for (const int axis : cutting(dim)) {
    if ((*this)[axis].outer() == outer) found.push_back(axis);
  }
  return found;
}

bool Pattern::has_inner() const {
  return std::ranges::any_of(placements(), [](const Placement& p) { return p.outer() > 1; });
}

bool Pattern::operator==(const Pattern& other) const {
  return std::ranges::equal(placements(), other.placements()) && depth_ == other.depth_;
}

bool Pattern::is_innermost(int axis) const {
  for (int other = 0; other < axes_; ++other) {
    if ((*this)[other].cuts_with((*this)[axis]) && depth(other) > depth(axis)) return false;
  }
  return (*this)[axis].is_shard();
}

Axes Pattern::partial_axes() const {
  return axes_where(axes_, [&](int axis) { return (*this)[axis].is_partial(); });
}

void Pattern::set(int axis, Placement placement) {
  auto at = static_cast<size_t>(axis);
  const Placement left = placements_[at];
  uint8_t cuts = 0;
  for (size_t other = 0; other < axes_; ++other) {
    if (other == at || !placements_[other].is_shard()) continue;
    if (placements_[other].cuts_with(left) && depth_[other] > depth_[at]) {
      --depth_[other];
      if (placements_[other].has_sizes()) set_sizes(static_cast<int>(other), {});
    }
    if (placements_[other].cuts_with(placement)) ++cuts;
  }
  placements_[at] = std::move(placement);
  depth_[at] = cuts;
}

bool Pattern::has_sizes() const { return std::ranges::any_of(placements(), &Placement::has_sizes); }

void Pattern::set_sizes(int axis, std::vector<int64_t> sizes) {
  Placement& placement = placements_[static_cast<size_t>(axis)];
  placement = Shard{placement.dim(), std::move(sizes), placement.outer()};
}

void Pattern::drop_trivial(int axis) {
  const Pattern before = *this;
  set(axis, Replicate());
  for (int other = 0; other < axes_; ++other) {
    if (other != axis) placements_[static_cast<size_t>(other)] = before[other];
  }
}

void Pattern::set_order(int dim, const Axes& axes, int64_t outer) {
  for (int level = 0; level < axes.size(); ++level) {
    Placement& placement = placements_[static_cast<size_t>(axes[level])];
    const Shard cut{dim, {}, outer};
    if (!placement.cuts_with(cut)) placement = cut;
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
    if (placement.outer() > 1) hash = mixed(hash, static_cast<uint64_t>(placement.outer()));
    for (const int64_t size : placement.sizes()) hash = mixed(hash, static_cast<uint64_t>(size));
  }
  return hash;
}

int64_t size_by_parts(const Pattern& pattern, int dim, int64_t outer) {
  for (const int axis : pattern.cutting(dim, outer)) {
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
                                                 int dim, int64_t size, int64_t outer_factors) {
  std::vector<std::vector<int64_t>> levels;
  std::vector<int64_t> outer{size};
  for (const int axis : pattern.cutting(dim, outer_factors)) {
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
  for (int first = 0; first < pattern.axes(); ++first) {
    if (!pattern[first].has_sizes()) continue;
    const int dim = pattern[first].dim();
    const int64_t factor = pattern[first].outer(), size = size_by_parts(pattern, dim, factor);
    std::vector<int64_t> outer{size};
    size_t level = 0;
    const auto parts = sizes_of_parts(pattern, sizes, dim, size, factor);
    for (const int axis : pattern.cutting(dim, factor)) {
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

/// The factors of a dim of `size` elements that the patterns cut: the product of those outside of
/// each, ascending. Empty unless each divides the next.
static std::vector<int64_t> factors_of(std::span<const Pattern> patterns, int dim, int64_t size) {
  std::set<int64_t> outers = {1};
  for (const Pattern& pattern : patterns) {
    for (const int axis : pattern.cutting(dim)) outers.insert(pattern[axis].outer());
  }
  std::vector<int64_t> all(outers.begin(), outers.end());
  for (size_t i = 0; i < all.size(); ++i) {
    if ((i + 1 < all.size() ? all[i + 1] : size) % all[i] != 0) return {};
  }
  return all;
}

/// Cuts dim `to` of `made`, of `size` elements, as `pattern` cuts a factor with `inner` elements to
/// each of these. False when parts are not multiples of `inner`.
static bool cut_factor(const Pattern& pattern, std::span<const int> sizes, const Placement& cut,
                       int64_t size, int64_t inner, int to, Pattern& made) {
  const Axes axes = pattern.cutting(cut.dim(), cut.outer());
  auto parts = sizes_of_parts(pattern, sizes, cut.dim(), size * inner, cut.outer());
  const bool fits = std::ranges::all_of(parts, [&](std::vector<int64_t>& level) {
    return std::ranges::all_of(level, [&](int64_t& part) {
      const bool divides = part % std::max<int64_t>(1, inner) == 0;
      part /= std::max<int64_t>(1, inner);
      return divides;
    });
  });
  made.set_order(to, axes);
  for (int i = 0; fits && i < axes.size(); ++i) {
    const bool keeps = inner == 1 && !pattern[axes[i]].has_sizes();
    if (!keeps) made.set_sizes(axes[i], std::move(parts[static_cast<size_t>(i)]));
  }
  return fits;
}

std::optional<Factoring> factored(const Shape& shape, std::span<const Pattern> patterns,
                                  std::span<const int> sizes) {
  Factoring made;
  std::vector<std::vector<int64_t>> outers;
  int count = 0;
  for (int dim = 0; dim < shape.ndim(); ++dim) {
    outers.push_back(factors_of(patterns, dim, shape[dim]));
    made.first.push_back(count);
    count += static_cast<int>(outers.back().size());
    if (outers.back().empty() || count > kMaxDims) return std::nullopt;
    for (size_t i = 0; i < outers.back().size(); ++i) {
      const int64_t end = i + 1 < outers.back().size() ? outers.back()[i + 1] : shape[dim];
      made.shape.push_back(end / outers.back()[i]);
    }
  }
  for (const Pattern& pattern : patterns) {
    Pattern plain = pattern;
    for (int axis = 0; axis < pattern.axes(); ++axis) {
      const Placement& cut = pattern[axis];
      if (!cut.is_shard() || pattern.depth(axis) > 0) continue;
      const std::vector<int64_t>& all = outers[static_cast<size_t>(cut.dim())];
      const auto at = std::ranges::find(all, cut.outer()) - all.begin();
      const int to = made.first[static_cast<size_t>(cut.dim())] + static_cast<int>(at);
      const int64_t span = shape[cut.dim()] / cut.outer();
      const int64_t inner = made.shape[to] == 0 ? 1 : span / made.shape[to];
      if (!cut_factor(pattern, sizes, cut, made.shape[to], inner, to, plain)) return std::nullopt;
    }
    made.patterns.push_back(normalised(plain, sizes));
  }
  return made;
}

/// Merges the factors of each dim: parts are numbered with those of the last factor outermost.
static Box merged(const Box& box, const Factoring& factors, const Shape& shape) {
  Box made{Dims::filled(shape.ndim(), 0), Dims::filled(shape.ndim(), 1)};
  for (int dim = 0, f = 0; dim < shape.ndim(); ++dim) {
    const auto next = static_cast<size_t>(dim) + 1;
    const int end = next < factors.first.size() ? factors.first[next] : factors.shape.ndim();
    for (int64_t before = 1; f < end; before *= factors.shape[f++]) {
      made.offset[dim] = box.offset[f] * before + box.shape[f] * made.offset[dim];
      made.shape[dim] *= box.shape[f];
    }
  }
  return made;
}

static Box plain_box_of(const Pattern& pattern, std::span<const int> sizes, const Shape& shape,
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

Box box_of(const Pattern& pattern, std::span<const int> sizes, const Shape& shape,
           std::span<const int> coordinates) {
  if (!pattern.has_inner()) return plain_box_of(pattern, sizes, shape, coordinates);
  const std::optional<Factoring> factors = factored(shape, {&pattern, 1}, sizes);
  if (!factors) {
    fail("layout: the cuts of ", shape, " are [", listed(pattern.placements()),
         "], expected parts of whole factors");
  }
  const Box box = plain_box_of(factors->patterns[0], sizes, factors->shape, coordinates);
  return merged(box, *factors, shape);
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

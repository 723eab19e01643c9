// SPDX-License-Identifier: Apache-2.0
#include "weft/sharding.h"

#include <ostream>

#include "mesh/mesh_body.h"
#include "mesh/plan.h"
#include "src/comm/rank_thread.h"
#include "weft/error.h"
#include "weft/extend/hash.h"

namespace weft {

static Placement counted(const Placement& placement, int ndim) {
  if (ndim == 0 && placement.is_shard() && placement.dim() < 0) {
    fail("sharding: placement is ", placement,
         ", expected a dim of at least 0 where no tensor is given");
  }
  return placement.counted(ndim);
}

static void place_by_name(std::span<Placement> placed, const DeviceMesh& mesh,
                          const std::vector<NamedPlacement>& named, int ndim) {
  Axes seen;
  for (const NamedPlacement& one : named) {
    int axis = mesh.root_axis(mesh.axis(one.axis));
    if (seen.contains(axis)) {
      fail("sharding: axis ", in_quotes(one.axis), " of ", mesh, " is named twice, expected once");
    }
    seen.push_back(axis);
    placed[static_cast<size_t>(axis)] = counted(one.placement, ndim);
  }
}

static void cut_in_stated_order(Pattern& pattern, const DeviceMesh& mesh, const CutOrder& order) {
  Axes cutting = pattern.cutting(order.dim), stated;
  for (const std::string& name : order.axes) {
    int axis = mesh.root_axis(mesh.axis(name));
    if (cutting.contains(axis) && !stated.contains(axis)) stated.push_back(axis);
  }
  if (stated.size() != cutting.size() || order.axes.size() != static_cast<size_t>(stated.size())) {
    std::vector<std::string> names;
    for (int axis : cutting) names.push_back(mesh.root().axis_name(axis));
    fail("sharding: order of dim ", order.dim, " is [", listed(order.axes),
         "], expected each axis that cuts it once, [", listed(names), "]");
  }
  for (const int first : stated) {
    if (pattern.depth(first) > 0) continue;
    const int64_t outer = pattern[first].outer();
    Axes same;
    for (const int axis : stated) {
      if (pattern[axis].outer() == outer) same.push_back(axis);
    }
    pattern.set_order(order.dim, same, outer);
  }
}

static void check_partials(const Pattern& pattern, const DeviceMesh& mesh) {
  const Axes partial = pattern.partial_axes();
  for (int axis : partial) {
    if (pattern[axis].op() == pattern[partial[0]].op()) continue;
    fail("sharding: kinds of Partial are ", pattern[partial[0]], " on axis ",
         in_quotes(mesh.root().axis_name(partial[0])), " and ", pattern[axis], " on axis ",
         in_quotes(mesh.root().axis_name(axis)), ", expected one kind");
  }
}

Sharding::Sharding(const DeviceMesh& mesh, const Placements& placements, int ndim) {
  if (!mesh) fail("sharding: this rank is not in the mesh, expected one of its ranks");
  MeshGrid& grid = mesh.body()->grid();
  const std::vector<Placement>& by_position = placements.by_position();
  if (by_position.size() > static_cast<size_t>(mesh.ndim())) {
    fail("sharding: number of placements is ", by_position.size(), ", expected at most ",
         mesh.ndim(), ", the axes of ", mesh);
  }
  std::array<Placement, kMaxAxes> placed;
  for (size_t i = 0; i < by_position.size(); ++i) {
    const auto axis = static_cast<size_t>(mesh.root_axis(static_cast<int>(i)));
    placed[axis] = counted(by_position[i], ndim);
  }
  place_by_name(placed, mesh, placements.by_name(), ndim);
  // Axes cut a dim in mesh order, in whichever order they were named.
  Pattern pattern(grid.ndim());
  for (int axis = 0; axis < grid.ndim(); ++axis) {
    pattern.set(axis, std::move(placed[static_cast<size_t>(axis)]));
  }
  for (const CutOrder& order : placements.orders()) {
    const int dim = counted(Shard{order.dim}, ndim).dim();
    cut_in_stated_order(pattern, mesh, {dim, order.axes});
  }
  check_partials(pattern, mesh);
  *this = grid.intern(pattern);
}

Sharding Sharding::of(const DeviceMesh& mesh, const Pattern& pattern) {
  check_partials(pattern, mesh);
  return mesh.body()->grid().intern(pattern);
}

DeviceMesh Sharding::mesh() const {
  if (!body_) return {};
  return DeviceMesh(shared_body_of(*this));
}

const Pattern& Sharding::pattern() const { return body_->pattern; }

int Sharding::axes() const { return body_ ? body_->pattern.axes() : 0; }

const Placement& Sharding::operator[](int axis) const { return body_->pattern[axis]; }

std::span<const Placement> Sharding::placements() const {
  if (!body_) return {};
  return body_->pattern.placements();
}

Axes Sharding::axes_cutting(int dim) const { return body_ ? pattern().cutting(dim) : Axes(); }

bool Sharding::has_sizes() const { return body_ && body_->pattern.has_sizes(); }

bool Sharding::has_inner() const { return body_ && body_->pattern.has_inner(); }

bool Sharding::has_partial() const { return body_ && body_->has_partial; }

bool Sharding::is_replicated() const { return !body_ || body_->is_replicated; }

std::ostream& operator<<(std::ostream& out, const Sharding& sharding) {
  if (!sharding) return out << "no sharding";
  return out << printed(sharding.body()->grid->axes()) << placements_in_words(sharding);
}

std::string placements_in_words(const Sharding& sharding) {
  const auto name = [&](int axis) { return sharding.body()->grid->names({axis}); };
  std::string words = concat('[', listed(sharding.placements()));
  for (int dim = 0; dim < kMaxDims; ++dim) {
    const Axes cutting = sharding.axes_cutting(dim);
    for (const int first : cutting) {
      if (sharding.pattern().depth(first) > 0) continue;
      const Axes order = sharding.pattern().cutting(dim, sharding[first].outer());
      if (!std::ranges::is_sorted(order)) {
        words += concat("; dim ", dim, " by ", listed(order, name));
      }
    }
  }
  return words + "]";
}

Box Layout::box_of(int rank) const {
  if (!grid) return box;
  return weft::box_of(sharding.pattern(), grid->sizes(), shape, grid->coordinates_of(rank));
}

static void check_dims(const Sharding& sharding, const Shape& shape) {
  for (int axis = 0; axis < sharding.axes(); ++axis) {
    if (sharding[axis].dim() < shape.ndim()) continue;
    fail("layout: placement on axis ", in_quotes(sharding.body()->grid->names({axis})), " is ",
         sharding[axis], ", expected a dim of the ", shape.ndim(), " of the shape ", shape);
  }
  for (int axis = 0; axis < sharding.axes(); ++axis) {
    const Placement& cut = sharding[axis];
    if (!cut.is_shard() || (!cut.has_sizes() && cut.outer() == 1)) continue;
    if (shape[cut.dim()] % cut.outer() != 0) {
      fail("layout: the outer factors of ", cut, " are ", cut.outer(), ", expected a divisor of ",
           shape[cut.dim()], ", the size of dim ", cut.dim(), " of ", shape);
    }
    const int64_t size = size_by_parts(sharding.pattern(), cut.dim(), cut.outer());
    if (size < 0 || size == shape[cut.dim()] / cut.outer()) continue;
    fail("layout: the explicit sizes of dim ", cut.dim(), " in ", sharding, " add up to ", size,
         ", expected ", shape[cut.dim()] / cut.outer(), ", as in the shape ", shape);
  }
}

static Ref<Layout> make_layout(const Sharding& sharding, const Shape& shape, DType dtype,
                               uint64_t hash) {
  check_dims(sharding, shape);
  for (int64_t size : shape) {
    if (size < 0) fail("layout: shape is ", shape, ", expected sizes of at least 0");
  }
  Ref<Layout> layout(new Layout);
  layout->shape = shape;
  layout->dtype = dtype;
  layout->sharding = sharding;
  layout->hash = hash;
  layout->box = {Dims::filled(shape.ndim(), 0), shape};
  if (sharding) {
    layout->grid = sharding.body()->grid->shared_from_this();
    layout->box = layout->box_of(layout->grid->rank());
  }
  layout->local_strides = dense_strides(layout->box.shape);
  return layout;
}

/// Cache of the calling rank's layouts without a sharding.
static Cache<Layout>& local_layouts() {
  WEFT_STATIC_TLS thread_local const auto layouts = std::make_unique<Cache<Layout>>(1024);
  return *layouts;
}

/// Throws when 64 bits cannot hold the number of bytes of such a tensor.
static void check_size(const Shape& shape, DType dtype) {
  auto bytes = static_cast<int64_t>(size_of(dtype));
  for (int64_t size : shape) {
    if (!__builtin_mul_overflow(bytes, std::max<int64_t>(1, size), &bytes)) continue;
    fail("layout: a tensor ", shape, " of ", dtype,
         " has too many bytes, expected at most 2^63 - 1");
  }
}

Ref<Layout> layout_of(const Sharding& sharding, const Shape& shape, DType dtype) {
  const RankThread::Call call(sharding ? &sharding.body()->grid->thread() : nullptr, "layout");
  uint64_t hash = sharding ? sharding.body()->hash : 0;
  hash = mixed(hash, static_cast<uint64_t>(shape.ndim()) << 8 | static_cast<uint64_t>(dtype));
  for (int64_t size : shape) hash = mixed(hash, static_cast<uint64_t>(size));
  Cache<Layout>& cache = sharding ? body_of(sharding).layouts : local_layouts();
  Layout* found = cache.find(hash, [&](const Layout& layout) {
    return layout.sharding == sharding && layout.shape == shape && layout.dtype == dtype;
  });
  if (found) return Ref<Layout>(found);
  check_size(shape, dtype);
  Ref<Layout> layout = make_layout(sharding, shape, dtype, hash);
  cache.insert(hash, layout);
  return layout;
}

Ref<Layout> in_factors(const Ref<Layout>& layout) {
  const Sharding& sharding = layout->sharding;
  if (!sharding.has_inner()) return layout;
  const auto factors = factored(layout->shape, {&sharding.pattern(), 1}, layout->grid->sizes());
  return layout_of(layout->grid->intern(factors->patterns[0]), factors->shape, layout->dtype);
}

std::ostream& operator<<(std::ostream& out, const Layout& layout) {
  out << layout.shape << ' ' << layout.dtype;
  if (layout.sharding) out << ' ' << layout.sharding;
  return out;
}

}  // namespace weft

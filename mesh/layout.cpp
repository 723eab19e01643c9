// SPDX-License-Identifier: Apache-2.0
#include "mesh/layout.h"

#include <ostream>

#include "mesh/mesh_body.h"
#include "weft/error.h"
#include "weft/extend/hash.h"

namespace weft {

void Layout::destroy(Layout* layout) { delete layout; }

Box Layout::box_of(int rank) const {
  if (!grid) return box;
  return weft::box_of(sharding.pattern(), sharding.body()->offsets, grid->sizes(), shape,
                      grid->coordinates_of(rank));
}

static void check_dims(const Sharding& sharding, const Shape& shape) {
  for (int axis = 0; axis < sharding.axes(); ++axis) {
    if (sharding[axis].dim() < shape.ndim()) continue;
    fail("layout: placement on axis ",
         in_quotes(sharding.body()->grid->axes()[static_cast<size_t>(axis)].name), " is ",
         sharding[axis], ", expected a dim of the ", shape.ndim(), " of the shape ", shape);
  }
  for (int dim = 0; dim < shape.ndim() && sharding && sharding.pattern().has_sizes(); ++dim) {
    const int64_t size = size_by_parts(sharding.pattern(), dim);
    if (size < 0 || size == shape[dim]) continue;
    fail("layout: the explicit sizes of dim ", dim, " in ", sharding, " add up to ", size,
         ", expected ", shape[dim], ", as in the shape ", shape);
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
  WEFT_STATIC_TLS thread_local Cache<Layout> layouts(1024);
  return layouts;
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

std::ostream& operator<<(std::ostream& out, const Layout& layout) {
  out << layout.shape << ' ' << layout.dtype;
  if (layout.sharding) out << ' ' << layout.sharding;
  return out;
}

}  // namespace weft

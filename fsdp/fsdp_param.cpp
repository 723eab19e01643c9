// SPDX-License-Identifier: Apache-2.0
#include "fsdp/fsdp_param.h"

#include <functional>
#include <range/v3/numeric/accumulate.hpp>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/cartesian_product.hpp>
#include <range/v3/view/drop.hpp>
#include <range/v3/view/iota.hpp>
#include <range/v3/view/take.hpp>
#include <range/v3/view/transform.hpp>

#include "weft/context.h"
#include "weft/extend/disk_memory.h"
#include "weft/ops/factories.h"
#include "weft/ops/shapes.h"

namespace weft::fsdp {

namespace views = ranges::views;

ParamTypes types_of(const MixedPrecision& precision, DType declared) {
  if (!is_floating(declared)) return {declared, declared, declared, declared, declared};
  ParamTypes types;
  types.storage = precision.storage.value_or(declared);
  types.compute = precision.compute.value_or(types.storage);
  types.gather = precision.gather.value_or(types.compute);
  types.accumulate = precision.accumulate.value_or(types.storage);
  types.reduce = precision.reduce.value_or(types.accumulate);
  return types;
}

Sharding layout_for(const Roles& roles, const Sharding& other_axes, int dim, size_t count,
                    Placement others, Placement replicas) {
  const DeviceMesh root = roles.mesh.root();
  Pattern pattern = other_axes ? other_axes.pattern() : Pattern(root.ndim());
  for (size_t i = 0; i < roles.sharded.size(); ++i) {
    pattern.set(root.axis(roles.sharded[i]), i < count ? Placement(Shard(dim)) : others);
  }
  for (const std::string& axis : roles.replicas) pattern.set(root.axis(axis), replicas);
  return Sharding::of(root, pattern);
}

int64_t Region::elements_before(int rank) const {
  return ranges::accumulate(counts | views::take(rank), int64_t{0});
}

static size_t rounded_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

size_t padded(size_t bytes) { return rounded_up(bytes, 64); }

size_t place_of_array(int64_t elements, DType dtype, bool on_disk, size_t& end) {
  if (on_disk) end = rounded_up(end, static_cast<size_t>(DiskMemory::kAlignment));
  const size_t place = rounded_up(end, size_of(dtype));
  end = place + static_cast<size_t>(elements) * size_of(dtype);
  return place;
}

std::vector<int64_t> parts_of(int64_t n, std::span<const int> sizes) {
  std::vector<int64_t> parts{n};
  for (const int size : sizes) {
    parts = views::cartesian_product(parts, views::ints(0, size)) |
            views::transform([&](const auto& at) {
              return chunk_of(std::get<0>(at), size, std::get<1>(at)).length;
            }) |
            ranges::to<std::vector>();
  }
  return parts;
}

Region region_of(const Shape& shape, int dim, DType dtype, DType wire, const AxisGroup& group,
                 size_t& end, const std::vector<int64_t>& lengths, bool may_pack) {
  Region region{
      .shape = shape, .dim = dim, .dtype = dtype, .wire = wire, .lengths = {}, .counts = {}};
  if (group.size == 1) region.wire = dtype;
  const auto outer = ranges::accumulate(shape | views::take(dim), int64_t{1}, std::multiplies());
  const auto row = ranges::accumulate(shape | views::drop(dim + 1), outer, std::multiplies());
  region.lengths = !lengths.empty()  ? lengths
                   : group.size == 1 ? std::vector<int64_t>{shape.ndim() ? shape[dim] : 1}
                                     : parts_of(shape[dim], group.sizes);
  region.counts = region.lengths | views::transform([&](int64_t length) { return row * length; }) |
                  ranges::to<std::vector>();
  region.packs = may_pack && group.size > 1 && (outer > 1 || region.wire != dtype);
  region.offset = end;
  end += padded(static_cast<size_t>(region.bytes()));
  region.packed = end;
  if (region.packs) end += padded(static_cast<size_t>(region.elements()) * size_of(region.wire));
  return region;
}

Tensor local_in(const Ref<Storage>& memory, size_t offset, const Shape& shape, DType dtype,
                const Sharding& layout) {
  return tensor_in(memory, static_cast<int64_t>(offset / size_of(dtype)), shape, dtype, layout);
}

/// Calls f(part of the array, packed part) for each rank of the group.
template <class F>
static void for_each_part(const Region& region, const Ref<Storage>& memory, const F& f) {
  const NoGrad no_grad;
  const Tensor whole = local_in(memory, region.offset, region.shape, region.dtype);
  size_t at = region.packed;
  int64_t from = 0;
  for (const int64_t length : region.lengths) {
    Shape shape = region.shape;
    shape[region.dim] = length;
    if (shape.product() > 0) {
      f(slice(whole, region.dim, from, from + length), local_in(memory, at, shape, region.wire));
    }
    at += static_cast<size_t>(shape.product()) * size_of(region.wire);
    from += length;
  }
}

void pack(const Region& region, const Ref<Storage>& memory) {
  for_each_part(region, memory,
                [](const Tensor& part, const Tensor& packed) { copy_(packed, part); });
}

void unpack(const Region& region, const Ref<Storage>& memory) {
  for_each_part(region, memory,
                [](const Tensor& part, const Tensor& packed) { copy_(part, packed); });
}

}  // namespace weft::fsdp

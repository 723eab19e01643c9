// SPDX-License-Identifier: Apache-2.0
#include "fsdp/buffers.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/disk_memory.h"
#include "weft/ops/factories.h"
#include "weft/ops/shapes.h"

#include <algorithm>
#include <functional>
#include <range/v3/numeric/accumulate.hpp>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/drop.hpp>
#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/take.hpp>
#include <range/v3/view/transform.hpp>
#include <utility>

namespace weft::fsdp {

namespace views = ranges::views;

int64_t sum_before(std::span<const int64_t> numbers, int count) {
  return ranges::accumulate(numbers | views::take(count), int64_t{0});
}

Shape Region::shape_of(int rank) const {
  Shape part = shape;
  if (part.ndim() > 0) part[dim] = lengths[static_cast<size_t>(rank)];
  return part;
}

size_t Region::at(int rank) const {
  return start() + static_cast<size_t>(sum_before(counts, rank)) * size_of(wire);
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
    std::vector<int64_t> finer;
    for (const int64_t length : parts) {
      for (int i = 0; i < size; ++i) finer.push_back(chunk_of(length, size, i).length);
    }
    parts = std::move(finer);
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
  for (int rank = 0; rank < static_cast<int>(region.counts.size()); ++rank) {
    if (region.count_of(rank) == 0) continue;
    f(part_of(region, whole, rank),
      local_in(memory, region.at(rank), region.shape_of(rank), region.wire));
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

void Extended::lay_out(size_t& end) {
  for (Wire& wire : wires) {
    wire.offset = end;
    end += padded(static_cast<size_t>(wire.elements()) * size_of(wire.dtype));
  }
}

Extended extended_of(const Region& region, DType slice,
                     std::shared_ptr<AllGatherExtension> extension, int own, size_t& end) {
  const NoGrad no_grad;
  Extended extended{.extension = std::move(extension), .own = own, .wires = {}};
  const size_t ranks = region.counts.size();
  for (size_t rank = 0; rank < ranks; ++rank) {
    if (region.counts[rank] == 0) continue;
    const Tensors sent = extended.extension->fsdp_pre_all_gather(
        zeros(region.shape_of(static_cast<int>(rank)), {.dtype = slice}));
    if (extended.wires.empty()) extended.wires.resize(sent.size());
    if (sent.size() != extended.wires.size()) {
      fail("fsdp_pre_all_gather: number of tensors is ", sent.size(), " for rank ", rank,
           ", expected ", extended.wires.size(), " as for other ranks");
    }
    for (const auto& [i, tensor] : views::enumerate(sent)) {
      Extended::Wire& wire = extended.wires[i];
      wire.shapes.resize(ranks);
      wire.counts.resize(ranks);
      wire.dtype = tensor.dtype();
      wire.shapes[rank] = tensor.shape();
      wire.counts[rank] = tensor.shape().product();
    }
  }
  extended.lay_out(end);
  return extended;
}

void encode_part(const Extended& extended, const Ref<Storage>& memory, const Tensor& part) {
  const Tensors sent = extended.extension->fsdp_pre_all_gather(part);
  if (sent.size() != extended.wires.size()) {
    fail("fsdp_pre_all_gather: number of tensors is ", sent.size(), ", expected ",
         extended.wires.size(), " as for zeros");
  }
  for (size_t i = 0; i < sent.size(); ++i) {
    const Extended::Wire& wire = extended.wires[i];
    const Shape& shape = wire.shapes[static_cast<size_t>(extended.own)];
    if (!(sent[i].shape() == shape) || sent[i].dtype() != wire.dtype) {
      fail("fsdp_pre_all_gather: tensor ", i, " is ", sent[i].shape(), " of ", sent[i].dtype(),
           ", expected ", shape, " of ", wire.dtype, " as for zeros");
    }
    transfer_(local_in(memory, wire.at(extended.own), shape, wire.dtype), sent[i]);
  }
}

Tensor part_of(const Region& region, const Tensor& whole, int rank) {
  if (region.lengths.size() == 1) return whole;
  const int64_t from = sum_before(region.lengths, rank);
  return slice(whole, region.dim, from, from + region.lengths[static_cast<size_t>(rank)]);
}

/// The size of the buffer for so many bytes: `bytes` itself if they are not expected.
size_t BufferPool::size_for(size_t bytes) const {
  size_t shared = 0;
  for (const size_t size : sizes_) {
    if (size < bytes) break;
    if (shared == 0 || shared - size > shared / 5) shared = size;
    if (size == bytes) return shared;
  }
  return bytes;
}

void BufferPool::expect(const void* user, std::vector<size_t> sizes) {
  if (expected_[user] == sizes) return;
  expected_[user] = std::move(sizes);
  sizes_.clear();
  for (const auto& [of, all] : expected_) sizes_.insert(sizes_.end(), all.begin(), all.end());
  std::ranges::sort(sizes_, std::greater<>());
}

Ref<Storage> BufferPool::acquire(size_t bytes) {
  const size_t size = size_for(bytes);
  auto found = std::ranges::find_if(free_, [&](const Free& free) {
    return free.buffer->bytes() == size && free.buffer->device() == device_;
  });
  if (found != free_.end()) {
    const Free free = std::move(*found);
    free_.erase(found);
    free.used.wait(current_stream(device_));
    return free.buffer;
  }
  PurposeScope purpose(Purpose::gathered);
  bytes_ += static_cast<int64_t>(size);
  return Storage::allocate(size, device_);
}

void BufferPool::release(Ref<Storage> buffer) {
  if (buffer->device() != device_) return;
  free_.push_back({std::move(buffer), Event::record(current_stream(device_))});
}

void BufferPool::set_device(Device device) {
  if (device == device_) return;
  clear();
  device_ = device;
  bytes_ = 0;
}

/// Waits until no stream uses the memory, and frees it.
void BufferPool::clear() {
  for (const Free& free : free_) free.used.synchronize_quietly();
  free_.clear();
}

}  // namespace weft::fsdp

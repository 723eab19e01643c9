// SPDX-License-Identifier: Apache-2.0
#include "fsdp/level.h"

#include <functional>
#include <range/v3/numeric/accumulate.hpp>
#include <range/v3/view/zip.hpp>

#include "weft/context.h"
#include "weft/ops/factories.h"

namespace weft::fsdp {

void Level::add(const Shape& shape, int dim, DType dtype, DType wire) {
  regions_.push_back(region_of(shape, dim, dtype, wire, ranks_, bytes_));
}

Level::Source Level::source(size_t parameter) const {
  return {memory_, regions_[parameter].offset, regions_[parameter].dtype};
}

void Level::unshard(const std::vector<Source>& sources, BufferPool& pool) {
  wait_for_unshard();
  if (!memory_) memory_ = pool.acquire(bytes_);
  under_way_ = true;
  if (memory_->device().kind == DeviceKind::meta) return;
  const NoGrad no_grad;
  auto* base = static_cast<char*>(memory_->data());
  std::vector<Piece> pieces;
  for (const auto& [region, source] : ranges::views::zip(regions_, sources)) {
    const int64_t own = region.counts[static_cast<size_t>(ranks_.rank)];
    const size_t place =
        region.start() + static_cast<size_t>(region.before(ranks_.rank)) * size_of(region.wire);
    const void* send = base + place;
    const bool is_here = source.memory->device() == memory_->device();
    if (source.dtype == region.wire && ranks_.size > 1 && is_here) {
      send = static_cast<const char*>(source.memory->data()) + source.offset;
    } else if (own > 0) {
      transfer_(local_in(memory_, place, {own}, region.wire),
                local_in(source.memory, source.offset, {own}, source.dtype));
    }
    pieces.push_back({.send = send,
                      .recv = base + region.start(),
                      .dtype = region.wire,
                      .counts = region.counts,
                      .device = memory_->device()});
  }
  if (ranks_.size > 1) {
    work_ = ranks_.communicator.all_gather(pieces);
  } else {
    cast_ = Event::record(current_stream(memory_->device()));
  }
}

void Level::wait_for_unshard() {
  if (!under_way_) return;
  under_way_ = false;
  work_.wait();
  if (memory_->device().kind == DeviceKind::meta) return;
  cast_.wait(current_stream(memory_->device()));
  for (const Region& region : regions_) {
    if (region.packs) unpack(region, memory_);
  }
}

void Level::reshard(BufferPool& pool) {
  wait_for_unshard();
  if (memory_) pool.release(std::exchange(memory_, {}));
}

void Level::drop() {
  wait_for_unshard();
  memory_ = {};
}

int64_t Level::traffic() const {
  if (ranks_.size == 1) return 0;
  return ranges::accumulate(regions_, int64_t{0}, std::plus(), [&](const Region& region) {
    const int64_t own = region.counts[static_cast<size_t>(ranks_.rank)];
    return (region.elements() - own) * static_cast<int64_t>(size_of(region.wire));
  });
}

int64_t Level::copied() const {
  return ranges::accumulate(regions_, int64_t{0}, std::plus(),
                            [](const Region& region) { return region.packs ? region.bytes() : 0; });
}

}  // namespace weft::fsdp

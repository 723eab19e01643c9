// SPDX-License-Identifier: Apache-2.0
#include "fsdp/level.h"

#include "weft/context.h"
#include "weft/ops/factories.h"

namespace weft::fsdp {

void Level::add(const Shape& shape, int dim, DType dtype, DType wire) {
  regions_.push_back(region_of(shape, dim, dtype, wire, group_, bytes_));
}

Level::Source Level::source(size_t parameter) const {
  return {memory_, regions_[parameter].offset, regions_[parameter].dtype};
}

void Level::start(const std::vector<Source>& sources, BufferPool& pool) {
  wait();
  if (!memory_) memory_ = pool.take(bytes_);
  waiting_ = true;
  if (memory_->device().kind == DeviceKind::meta) return;
  const NoGrad no_grad;
  auto* base = static_cast<char*>(memory_->data());
  std::vector<Piece> pieces;
  for (size_t i = 0; i < regions_.size(); ++i) {
    const Region& region = regions_[i];
    const Source& source = sources[i];
    const int64_t own = region.counts[static_cast<size_t>(group_.rank)];
    const size_t place =
        region.start() + static_cast<size_t>(region.before(group_.rank)) * size_of(region.wire);
    const void* send = base + place;
    const bool is_here = source.memory->device() == memory_->device();
    if (source.dtype == region.wire && group_.size > 1 && is_here) {
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
  if (group_.size > 1) {
    work_ = group_.ranks.all_gather(pieces);
  } else {
    cast_ = Event::record(current_stream(memory_->device()));
  }
}

void Level::wait() {
  if (!waiting_) return;
  waiting_ = false;
  work_.wait();
  if (memory_->device().kind == DeviceKind::meta) return;
  cast_.wait(current_stream(memory_->device()));
  for (const Region& region : regions_) {
    if (region.packs) unpack(region, memory_);
  }
}

void Level::free(BufferPool& pool) {
  wait();
  if (memory_) pool.give(std::exchange(memory_, {}));
}

void Level::drop() {
  wait();
  memory_ = {};
}

int64_t Level::traffic() const {
  int64_t bytes = 0;
  if (group_.size == 1) return bytes;
  for (const Region& region : regions_) {
    const int64_t own = region.counts[static_cast<size_t>(group_.rank)];
    bytes += (region.elements() - own) * static_cast<int64_t>(size_of(region.wire));
  }
  return bytes;
}

int64_t Level::copied() const {
  int64_t bytes = 0;
  for (const Region& region : regions_) bytes += region.packs ? region.bytes() : 0;
  return bytes;
}

}  // namespace weft::fsdp

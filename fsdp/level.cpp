// SPDX-License-Identifier: Apache-2.0
#include "fsdp/level.h"

#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/zip.hpp>

#include "fsdp/quantized.h"
#include "weft/context.h"
#include "weft/ops/factories.h"

namespace weft::fsdp {

namespace views = ranges::views;

void Level::add(const FsdpParam& param, const Array& array, int64_t block) {
  // An extension and codes have their own packed form.
  const bool is_quantized = param.codes && ranks_.size > 1;
  const bool packs = !array.extension && !is_quantized;
  const DType wire = packs ? param.types.gather : array.dtype, slice = param.types.storage;
  const Region& region = regions_.emplace_back(
      region_of(array.shape, param.dim, array.dtype, wire, ranks_, bytes_, array.lengths, packs));
  // Slices of the wire's dtype are read to their place among the parameters, others behind them.
  const auto own = static_cast<size_t>(region.count_of(ranks_.rank));
  slice_bytes_ += static_cast<int64_t>(own * size_of(slice));
  if (array.extension || slice != region.wire) {
    read_bytes_ += padded(own * size_of(slice));
  }
  extended_.push_back(array.extension
                          ? extended_of(region, slice, array.extension, ranks_.rank, bytes_)
                      : is_quantized ? quantized_of(region, *param.codes, block,
                                                    stages_ ? stages_->order() : numbers_of(ranks_),
                                                    ranks_.rank, bytes_)
                                     : Extended());
}

Level::Source Level::source(size_t parameter) const {
  return {memory_, regions_[parameter].offset, regions_[parameter].dtype};
}

/// This rank's part of a parameter, cast to the wire's dtype in its place if necessary.
void Level::send_part(const Region& region, const Source& source, std::vector<Piece>& pieces) {
  auto* base = static_cast<char*>(memory_->data());
  const int64_t own = region.count_of(ranks_.rank);
  const size_t place = region.at(ranks_.rank);
  const void* send = base + place;
  const bool is_here = source.memory->device() == memory_->device();
  const bool in_place = source.memory == memory_ && source.offset == place;
  if (source.dtype == region.wire && ranks_.size > 1 && is_here) {
    send = static_cast<const char*>(source.memory->data()) + source.offset;
  } else if (own > 0 && !in_place) {
    transfer_(local_in(memory_, place, {own}, region.wire),
              local_in(source.memory, source.offset, {own}, source.dtype));
  }
  pieces.push_back({.send = send,
                    .recv = base + region.start(),
                    .dtype = region.wire,
                    .counts = region.counts,
                    .device = memory_->device()});
}

/// Sends the encoded part in place of this rank's part, at its position among what all ranks send.
void Level::send_extended(size_t parameter, const Source& source, std::vector<Piece>& pieces,
                          std::deque<std::vector<int64_t>>& counts) {
  const Region& region = regions_[parameter];
  const Extended& extended = extended_[parameter];
  if (const int64_t own = region.count_of(ranks_.rank); own > 0) {
    const Shape shape = extended.extension ? region.shape_of(ranks_.rank) : Shape{1, own};
    const Tensor part = local_in(source.memory, source.offset, shape, source.dtype);
    extended.extension ? encode_part(extended, memory_, part.to(memory_->device()))
                       : quantize_part(extended, memory_, part.to(memory_->device()).block());
  }
  add_pieces(extended, memory_, stages_ ? stages_->across.size : ranks_.size, 1, pieces, counts);
}

void Level::receive_extended(size_t parameter) const {
  const Extended& extended = extended_[parameter];
  const Region& region = regions_[parameter];
  const Tensor whole = local_in(memory_, region.offset, region.shape, region.dtype);
  for (int rank = 0; rank < ranks_.size; ++rank) {
    if (region.count_of(rank) == 0) continue;
    Tensors received;
    for (const Extended::Wire& wire : extended.wires) {
      received.push_back(
          local_in(memory_, wire.at(rank), wire.shapes[static_cast<size_t>(rank)], wire.dtype));
    }
    extended.extension->fsdp_post_all_gather(received, part_of(region, whole, rank));
  }
}

void Level::unshard(const std::vector<Source>& sources, BufferPool& pool,
                    const CustomCollective& collective) {
  wait_for_unshard();
  if (!memory_) memory_ = pool.acquire(bytes_);
  under_way_ = true;
  if (memory_->device().kind == DeviceKind::meta) return;
  collective_ = collective;
  on_disk_ ? read_slices(sources) : start(sources);
}

/// Starts to read this rank's parts. A GPU gets them from memory of the host.
void Level::read_slices(const std::vector<Source>& sources) {
  const bool here = memory_->device().kind == DeviceKind::cpu;
  stream_ = current_stream(memory_->device());
  size_t behind = staging_;
  for (const auto& [i, source] : views::enumerate(sources)) {
    const Region& region = regions_[i];
    const int64_t own = region.count_of(ranks_.rank);
    const int64_t bytes = own * static_cast<int64_t>(size_of(source.dtype));
    const bool in_place = source.dtype == region.wire && !extended_[i].extension;
    Staged staged{{memory_, behind, source.dtype}, {}};
    if (!here) {
      staged.part.memory = Storage::allocate_pinned(static_cast<size_t>(bytes));
      staged.part.offset = 0;
    } else if (in_place) {
      staged.part.offset = region.at(ranks_.rank);
    } else {
      behind += padded(static_cast<size_t>(bytes));
    }
    if (own > 0) {
      const auto disk = source.memory->on_disk();
      staged.read = disk->read(static_cast<int64_t>(source.offset), bytes,
                               static_cast<char*>(staged.part.memory->data()) + staged.part.offset);
    }
    staged_.push_back(std::move(staged));
  }
}

/// Starts the all-gather of parts that have been read.
void Level::start_read() {
  std::vector<Staged> staged = std::exchange(staged_, {});
  std::vector<Source> sources;
  for (Staged& one : staged) {
    one.read.wait();
    sources.push_back(one.part);
  }
  const StreamScope scope(stream_);
  start(sources);
  // The pinned memory must outlive the copies from it.
  if (memory_->device().kind == DeviceKind::cuda) Event::record(stream_).synchronize();
}

/// Starts the all-gather.
void Level::start(const std::vector<Source>& sources) {
  const NoGrad no_grad;
  std::vector<Piece> pieces;
  std::deque<std::vector<int64_t>> counts;
  for (size_t i = 0; i < sources.size(); ++i) {
    extended_[i] ? send_extended(i, sources[i], pieces, counts)
                 : send_part(regions_[i], sources[i], pieces);
  }
  if (ranks_.size > 1) {
    work_ = gathered(stages_ ? stages_->across : ranks_, pieces);
    across_only_ = stages_.has_value();
    // Streams order the gathers of a GPU; the CPU has to wait.
    if (across_only_ && memory_->device().kind == DeviceKind::cuda) gather_within();
  } else {
    cast_ = Event::record(current_stream(memory_->device()));
  }
}

Work Level::gathered(const AxisGroup& ranks, std::span<const Piece> pieces) const {
  return collective_ ? collective_(ranks.communicator, pieces)
                     : ranks.communicator.all_gather(pieces);
}

/// Waits for the codes from across, and starts to gather them within.
void Level::gather_within() {
  work_.wait();
  across_only_ = false;
  std::vector<Piece> pieces;
  std::deque<std::vector<int64_t>> counts;
  for (const Extended& extended : extended_) {
    add_pieces(extended, memory_, ranks_.size, stages_->across.size, pieces, counts);
  }
  work_ = gathered(stages_->within, pieces);
}

void Level::wait_for_unshard() {
  if (!under_way_) return;
  under_way_ = false;
  if (!staged_.empty()) start_read();
  if (across_only_) gather_within();
  work_.wait();
  if (memory_->device().kind == DeviceKind::meta) return;
  cast_.wait(current_stream(memory_->device()));
  const NoGrad no_grad;
  for (size_t i = 0; i < regions_.size(); ++i) {
    if (extended_[i].extension) receive_extended(i);
    if (extended_[i].is_quantized()) dequantize_parts(extended_[i], memory_, regions_[i], memory_);
    if (regions_[i].packs) unpack(regions_[i], memory_);
  }
  reader_ = current_stream(memory_->device());
  ready_ = Event::record(reader_);
}

void Level::wait_for_other_stream() const {
  if (ready_.empty()) return;
  const Stream here = current_stream(reader_.device);
  if (here != reader_) ready_.wait(here);
}

void Level::reshard(BufferPool& pool, bool keeps) {
  wait_for_unshard();
  if (memory_ && !keeps) pool.release(std::exchange(memory_, {}));
}

void Level::drop() {
  wait_for_unshard();
  memory_ = {};
}

std::vector<AxisTraffic> Level::traffic() const {
  AxisTraffic all{ranks_.axes, 0};
  if (ranks_.size == 1) return {all};
  int64_t across = 0;
  for (const auto& [region, extended] : views::zip(regions_, extended_)) {
    if (!extended) {
      all.bytes += (region.elements() - region.count_of(ranks_.rank)) *
                   static_cast<int64_t>(size_of(region.wire));
    }
    for (const Extended::Wire& wire : extended.wires) {
      all.bytes += wire.received(extended.own);
      if (stages_) across += wire.received_of(extended.own, stages_->across.size);
    }
  }
  if (!stages_) return {all};
  return {{stages_->across.axes, across}, {stages_->within.axes, all.bytes - across}};
}

int64_t Level::copied() const {
  int64_t bytes = 0;
  for (const auto& [region, extended] : views::zip(regions_, extended_)) {
    if (region.packs || extended) bytes += region.bytes();
  }
  return bytes;
}

}  // namespace weft::fsdp

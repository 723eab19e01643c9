// SPDX-License-Identifier: Apache-2.0
#include <range/v3/view/enumerate.hpp>

#include "fsdp/gradients.h"
#include "fsdp/level.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/disk_tensor.h"
#include "weft/ops/factories.h"

namespace weft::fsdp {

namespace views = ranges::views;

/// Slices of the wire's dtype are read to their place among the parameters, others behind them.
void Level::close_on_disk() {
  on_disk_ = true;
  staging_ = bytes_;
  for (const auto& [i, region] : views::enumerate(regions_)) {
    const Array& array = arrays_[i];
    if (array.slice == region.wire && !array.extension) continue;
    const auto own = static_cast<size_t>(region.counts[static_cast<size_t>(ranks_.rank)]);
    bytes_ += padded(own * size_of(array.slice));
  }
}

/// Starts to read this rank's parts. A GPU gets them from memory of the host.
void Level::read_slices(const std::vector<Source>& sources) {
  const bool here = memory_->device().kind == DeviceKind::cpu;
  stream_ = current_stream(memory_->device());
  size_t behind = staging_;
  for (const auto& [i, source] : views::enumerate(sources)) {
    const Region& region = regions_[i];
    const int64_t own = region.counts[static_cast<size_t>(ranks_.rank)];
    const int64_t bytes = own * static_cast<int64_t>(size_of(source.dtype));
    const bool in_place = source.dtype == region.wire && !extended_[i].extension;
    Staged staged{source, memory_, behind, {}};
    if (!here) {
      staged.memory = Storage::allocate_pinned(static_cast<size_t>(bytes));
      staged.offset = 0;
    } else if (in_place) {
      staged.offset = region.start() + static_cast<size_t>(region.elements_before(ranks_.rank)) *
                                           size_of(region.wire);
    } else {
      behind += padded(static_cast<size_t>(bytes));
    }
    if (own > 0) {
      const auto disk = DiskMemory::behind(*source.memory);
      staged.read = disk->read(static_cast<int64_t>(source.offset), bytes,
                               static_cast<char*>(staged.memory->data()) + staged.offset);
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
    sources.push_back({one.memory, one.offset, one.source.dtype});
  }
  const StreamScope scope(stream_);
  start(sources);
  // The pinned memory must outlive the copies from it.
  if (memory_->device().kind == DeviceKind::cuda) Event::record(stream_).synchronize();
}

static int64_t bytes_of_element(const ParamGrad& grad) {
  return static_cast<int64_t>(size_of(grad.param->types.accumulate));
}

void Gradients::make_file() {
  std::vector<DiskMemory::Array> arrays;
  for (const Grad& grad : grads_) {
    arrays.push_back({concat("gradient of parameter ", grad.param->name),
                      grad.param->sharded_elements() * bytes_of_element(grad)});
  }
  disk_ = DiskMemory::make(tier_.directory(), std::move(arrays), DiskPath::cached);
  final_ = disk_->storage();
}

void Gradients::read_sum(const Grad& grad) {
  wait_for_writes();
  const Tensor sum = sum_of(grad);
  if (device_.kind == DeviceKind::cuda) return copy_(sum, in_memory(final_of(grad)));
  disk_
      ->read(static_cast<int64_t>(grad.offset), sum.block().numel() * bytes_of_element(grad),
             sum.block().data)
      .wait();
}

/// On one rank backward adds to earlier sums itself, as it does in memory: with the same bits.
void Gradients::read_sums_to_buffer() {
  const NoGrad no_grad;
  for (Grad& grad : grads_) {
    if (grad.sum == Sum::none) continue;
    copy_(
        local_in(buffer_, grad.unsharded.offset, {grad.unsharded.elements()}, grad.unsharded.dtype),
        in_memory(final_of(grad)));
    grad.in_buffer = grad.from_file = true;
    grad.sum = Sum::none;
  }
}

void Gradients::write_sum(const Grad& grad) {
  const Tensor sum = sum_of(grad);
  if (device_.kind == DeviceKind::cuda) return write_to_disk(final_of(grad), sum);
  writes_.push_back(disk_->write(static_cast<int64_t>(grad.offset),
                                 sum.block().numel() * bytes_of_element(grad), sum.block().data));
}

void Gradients::wait_for_writes() {
  for (DiskMemory::Transfer& write : std::exchange(writes_, {})) write.wait();
}

}  // namespace weft::fsdp

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "src/comm/memory/memory_group.h"
#include "src/device/cuda/runtime.h"
#include "weft/error.h"

namespace weft {

/// Orders one rank's exchange on GPUs, where the reads are queued on streams. Where the ranks'
/// threads wait for each other, their streams wait for what the other ranks have queued by then; no
/// thread waits for a GPU. Uses the stream that was current at construction. Does nothing for host
/// memory.
class ExchangeOrder {
 public:
  /// For a call whose published memory is on `device`.
  ExchangeOrder(const MemoryGroup& group, int rank, uint64_t sequence, Device device)
      : group_(group), rank_(rank), sequence_(sequence), device_(device) {
    if (!is_queued()) return;
    if (cuda::is_capturing()) {
      fail(group.name,
           ": the recorded work of a graph exchanges with threads of this process, "
           "expected ranks that are processes, each with a GPU");
    }
    stream_ = current_stream(device);
  }

  /// Records that the work that makes the published memory is queued.
  void posted() { mark(0); }
  /// Makes the stream wait until the others' memory for `phase` is valid: their posts for phase 0,
  /// their reads of the previous phase otherwise. Reads of `phase` may be queued afterwards.
  void await(int phase) {
    if (!is_queued()) return;
    for (int r = 0; r < group_.size(); ++r) {
      if (r == rank_) continue;
      const SlotEvents& events = group_.events(r, sequence_);
      if (phase == 0) check_reach(r, events.device);
      cuda::wait_event(stream_, events.points[static_cast<size_t>(phase)]);
    }
  }
  /// Records that the reads of `phase` are queued.
  void finished(int phase) { mark(1 + phase); }
  /// Makes the stream wait for all ranks' reads of the last phase; later work may overwrite what
  /// this rank has published.
  void ended(int last) {
    await(1 + last);
    if (is_queued()) end_ = Event::record(stream_);
  }
  /// Makes the current stream wait for the end.
  void join() const {
    if (end_.empty()) return;
    const Stream now = current_stream(device_);
    if (now != stream_) end_.wait(now);
  }
  /// Returns true when the GPU has reached the end.
  bool is_reached() const { return end_.empty() || end_.is_reached(); }

  /// The stream on which the reads are queued.
  const Stream& stream() const { return stream_; }

 private:
  bool is_queued() const { return device_.kind == DeviceKind::cuda; }

  void mark(int point) {
    if (!is_queued()) return;
    SlotEvents& events = group_.events(rank_, sequence_);
    if (events.device != device_) {
      for (void*& event : events.points) {
        if (event) events.former.push_back(std::exchange(event, nullptr));
      }
      events.device = device_;
    }
    void*& event = events.points[static_cast<size_t>(point)];
    if (event) {
      cuda::record_event(event, stream_);
    } else {
      event = cuda::create_event(stream_);
    }
  }

  void check_reach(int other, Device device) const {
    if (cuda::open_memory(device_.index, device.index)) return;
    fail(group_.name, ": ", device_, " of ", group_.in_words(rank_), " cannot read ", device,
         " of ", group_.in_words(other), "; make each rank a process (weft run)");
  }

  const MemoryGroup& group_;
  const int rank_;
  const uint64_t sequence_;
  const Device device_;
  Stream stream_;
  Event end_;
};

}  // namespace weft

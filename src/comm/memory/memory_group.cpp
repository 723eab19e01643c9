// SPDX-License-Identifier: Apache-2.0
#include "src/comm/memory/memory_group.h"

#include <utility>

#include "src/device/cuda/runtime.h"
#include "weft/error.h"

namespace weft {

/// Destroys the events of exchanges.
MemoryGroup::~MemoryGroup() {
  for (const SlotEvents& events : events_) {
    for (void* event : events.points) {
      if (event) cuda::destroy_event(event);
    }
    for (void* event : events.former) cuda::destroy_event(event);
  }
}

ExchangeOrder::ExchangeOrder(const MemoryGroup& group, int rank, uint64_t sequence, Device device)
    : group_(group), rank_(rank), sequence_(sequence), device_(device) {
  if (!is_queued()) return;
  if (cuda::is_capturing()) {
    fail(group.name,
         ": the recorded work of a graph exchanges with threads of this process, "
         "expected ranks that are processes, each with a GPU");
  }
  stream_ = current_stream(device);
}

void ExchangeOrder::mark(int point) {
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

void ExchangeOrder::await(int phase) {
  if (!is_queued()) return;
  for (int r = 0; r < group_.size(); ++r) {
    if (r == rank_) continue;
    const SlotEvents& events = group_.events(r, sequence_);
    if (phase == 0) check_reach(r, events.device);
    cuda::wait_event(stream_, events.points[static_cast<size_t>(phase)]);
  }
}

void ExchangeOrder::check_reach(int other, Device device) const {
  if (cuda::open_memory(device_.index, device.index)) return;
  fail(group_.name, ": ", device_, " of ", group_.in_words(rank_), " cannot read ", device, " of ",
       group_.in_words(other), "; make each rank a process (weft run)");
}

void ExchangeOrder::posted() { mark(0); }
void ExchangeOrder::finished(int phase) { mark(1 + phase); }

void ExchangeOrder::ended(int last) {
  await(1 + last);
  if (is_queued()) end_ = Event::record(stream_);
}

void ExchangeOrder::join() const {
  if (end_.empty()) return;
  const Stream now = current_stream(device_);
  if (now != stream_) end_.wait(now);
}

}  // namespace weft

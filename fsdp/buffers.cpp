// SPDX-License-Identifier: Apache-2.0
#include "fsdp/buffers.h"

#include <algorithm>

namespace weft::fsdp {

Ref<Storage> BufferPool::acquire(size_t bytes) {
  auto found = std::find_if(free_.begin(), free_.end(), [&](const Free& free) {
    return free.buffer->bytes() == bytes && free.buffer->device() == device_;
  });
  if (found != free_.end()) {
    const Free free = std::move(*found);
    free_.erase(found);
    free.used.wait(current_stream(device_));
    return free.buffer;
  }
  PurposeScope purpose(Purpose::gathered);
  bytes_ += static_cast<int64_t>(bytes);
  return Storage::allocate(bytes, device_);
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

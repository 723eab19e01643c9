// SPDX-License-Identifier: Apache-2.0
#include "fsdp/buffers.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace weft::fsdp {

BufferSizes::BufferSizes(std::vector<size_t> sizes) : sizes_(std::move(sizes)) {
  std::sort(sizes_.begin(), sizes_.end(), std::greater<>());
}

size_t BufferSizes::of(size_t bytes) const {
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
  std::vector<size_t> all;
  for (const auto& [of, theirs] : expected_) all.insert(all.end(), theirs.begin(), theirs.end());
  sizes_ = BufferSizes(std::move(all));
}

Ref<Storage> BufferPool::acquire(size_t bytes) {
  const size_t size = sizes_.of(bytes);
  auto found = std::find_if(free_.begin(), free_.end(), [&](const Free& free) {
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

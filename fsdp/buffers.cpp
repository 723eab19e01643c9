// SPDX-License-Identifier: Apache-2.0
#include "fsdp/buffers.h"

#include <algorithm>

namespace weft::fsdp {

Ref<Storage> BufferPool::take(size_t bytes) {
  auto found = std::find_if(free_.begin(), free_.end(), [&](const Ref<Storage>& buffer) {
    return buffer->bytes() == bytes && buffer->device() == device_;
  });
  if (found != free_.end()) {
    Ref<Storage> buffer = *found;
    free_.erase(found);
    return buffer;
  }
  PurposeScope purpose(Purpose::gathered);
  bytes_ += static_cast<int64_t>(bytes);
  return Storage::allocate(bytes, device_);
}

void BufferPool::give(Ref<Storage> buffer) {
  if (buffer->device() == device_) free_.push_back(std::move(buffer));
}

void BufferPool::set_device(Device device) {
  if (device == device_) return;
  device_ = device;
  free_.clear();
  bytes_ = 0;
}

}  // namespace weft::fsdp

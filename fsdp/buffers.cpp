// SPDX-License-Identifier: Apache-2.0
#include "fsdp/buffers.h"

#include <algorithm>

namespace weft::fsdp {

Ref<Storage> BufferPool::take(size_t bytes) {
  auto found = std::find_if(free_.begin(), free_.end(),
                            [&](const Ref<Storage>& buffer) { return buffer->bytes() == bytes; });
  if (found != free_.end()) {
    Ref<Storage> buffer = *found;
    free_.erase(found);
    return buffer;
  }
  PurposeScope purpose(Purpose::gathered);
  all_.push_back(Storage::allocate(bytes));
  bytes_ += static_cast<int64_t>(bytes);
  return all_.back();
}

void BufferPool::give(Ref<Storage> buffer) { free_.push_back(std::move(buffer)); }

int BufferPool::number(const Storage& buffer) const {
  for (size_t i = 0; i < all_.size(); ++i) {
    if (all_[i].get() == &buffer) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace weft::fsdp

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "weft/storage.h"
#include "weft/stream.h"

namespace weft::fsdp {

/// Reuses buffers for unsharded parameters and gradients: only the first step allocates memory. On
/// a GPU each released buffer keeps an event of its last user's stream, and the stream of the next
/// user waits for this event.
class BufferPool {
 public:
  BufferPool() = default;
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;
  ~BufferPool() { clear(); }

  /// Returns a free buffer of exactly `bytes` bytes, or a new one, for the current stream.
  Ref<Storage> acquire(size_t bytes);
  /// Makes the buffer available after the work that is queued on the current stream.
  void release(Ref<Storage> buffer);
  /// Sets the device of new buffers. Frees the buffers of another device.
  void set_device(Device device);
  Device device() const { return device_; }
  /// Bytes of all buffers allocated on this device.
  int64_t bytes() const { return bytes_; }

 private:
  struct Free {
    Ref<Storage> buffer;
    Event used;
  };
  void clear();

  std::vector<Free> free_;
  Device device_ = cpu;
  int64_t bytes_ = 0;
};

}  // namespace weft::fsdp

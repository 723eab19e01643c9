// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "weft/storage.h"
#include "weft/stream.h"

namespace weft::fsdp {

/// Buffers for whole parameters and gradients, used again and again: no step makes memory after the
/// first. On a GPU one is given with what its last user's stream has queued by then, and the next
/// user's stream waits for that.
class BufferPool {
 public:
  BufferPool() = default;
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;
  ~BufferPool() { clear(); }

  /// A free buffer of exactly so many bytes, or a new one, for the current stream.
  Ref<Storage> take(size_t bytes);
  /// The current stream uses it last.
  void give(Ref<Storage> buffer);
  /// Where new buffers are, from now on.
  void set_device(Device device);
  Device device() const { return device_; }
  /// Of all buffers made there.
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

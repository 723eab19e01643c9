// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <vector>

#include "weft/storage.h"
#include "weft/stream.h"

namespace weft::fsdp {

/// Sizes of buffers. Those that differ by at most a fifth get buffers of one size, the largest of
/// them: the embedding, the head and the blocks of a model share their buffers.
class BufferSizes {
 public:
  BufferSizes() = default;
  /// The sizes that will be asked for.
  explicit BufferSizes(std::vector<size_t> sizes);
  /// Returns the size of the buffer for so many bytes: `bytes` itself if they are not expected.
  size_t of(size_t bytes) const;

 private:
  /// Descending.
  std::vector<size_t> sizes_;
};

/// Reuses buffers for unsharded parameters and gradients: only the first two steps allocate memory
/// (prefetch starts with the second). On a GPU each released buffer keeps an event of its last
/// user's stream, and the stream of the next user waits for this event.
class BufferPool {
 public:
  BufferPool() = default;
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;
  ~BufferPool() { clear(); }

  /// The sizes of the buffers that `user` will ask for.
  void expect(const void* user, std::vector<size_t> sizes);
  /// Returns a free buffer of the size for so many bytes, or a new one, for the current stream.
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
  std::map<const void*, std::vector<size_t>> expected_;
  BufferSizes sizes_;
  Device device_ = cpu;
  int64_t bytes_ = 0;
};

}  // namespace weft::fsdp

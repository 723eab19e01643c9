// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "src/device/memory_blocks.h"
#include "weft/export.h"
#include "weft/storage.h"
#include "weft/stream.h"

namespace weft {

/// Sees what a thread allocates, and frees (negative).
class MemoryWatch {
 public:
  virtual void counted(DeviceKind kind, int64_t bytes) = 0;

 protected:
  ~MemoryWatch() = default;
};

/// The memory of one thread: counts of its allocations, and the freed blocks it keeps for reuse.
/// Only its thread allocates and counts; blocks that other threads free wait in an inbox. The heap
/// outlives its thread until the last of its memory is freed.
class Heap : NotCopied {
 public:
  /// Returns the calling thread's heap.
  static Heap& current() {
    Heap* heap = current_;
    return heap ? *heap : make_current();
  }

  /// Allocates and counts `bytes`, aligned to 64; returns nullptr for `meta`. std::runtime_error
  /// when memory is exhausted. GPU memory may be used at once by the calling thread's current
  /// stream; other streams must wait for an event of it.
  void* allocate(size_t bytes, Device device, Purpose purpose);
  /// Allocates pinned host memory for asynchronous copies, counted as host memory, never cached.
  void* allocate_pinned(size_t bytes, Purpose purpose);

  struct Freed {
    void* data;
    size_t bytes;
    Device device;
    Purpose purpose;
    bool pinned;
  };
  /// Frees memory that this heap allocated; called from any thread. The calling thread's current
  /// stream may still be using GPU memory.
  void free(const Freed& freed);

  MemoryStatistics statistics(DeviceKind kind);
  void reset_peak(DeviceKind kind);
  void release_cached();
  /// Releases GPU memory that a capture allocated and freed; its graph must not be replayed.
  void give_up_capture(uint64_t capture);
  /// The current stream and `side`, of StreamRole::side, have waited for each other: what one freed
  /// of the other's memory returns to it.
  void exchange_freed(const Stream& side) { kept_on_devices_.exchange(side); }

  /// Null without one.
  MemoryWatch* watch = nullptr;

  /// Called in a child of fork: memory that the calling thread kept is not shared with the child.
  static void forget_kept();

 private:
  /// `shared`: the heap of ending threads, which keeps no blocks and is never deleted.
  explicit Heap(bool shared) : owned_(!shared), live_(shared) {}
  ~Heap() = default;
  friend struct HeapOwner;

  static Heap& make_current();
  void* allocate_shared(size_t bytes, Device device);
  void* allocate_on_cpu(size_t bytes);
  void* allocate_on_device(size_t bytes, Device device);
  void* allocate_fresh(int size_class, size_t bytes);
  void free_here(const Freed& freed);
  void free_elsewhere(const Freed& freed);
  void empty_inbox();
  /// Called when the thread ends: deletes the heap when none of its memory is in use.
  void abandon();
  void count(DeviceKind kind, Purpose purpose, int64_t bytes);

  WEFT_STATIC_TLS static thread_local Heap* current_;

  KeptBlocks kept_;
  /// Memory freed by another thread. That thread's stream finishes with GPU memory at `last_use`.
  struct FreedElsewhere {
    Freed freed;
    Event last_use;
  };

  cuda::KeptDeviceBlocks kept_on_devices_;
  std::array<MemoryStatistics, 3> counted_;
  /// Bytes of blocks in use, counted as whole size classes, and their peak.
  int64_t in_use_ = 0, most_in_use_ = 0;

  std::atomic<bool> has_inbox_{false};
  std::mutex mutex_;
  std::vector<FreedElsewhere> inbox_;
  bool owned_;
  /// Allocations that are not freed yet; used only by this thread until it abandons the heap.
  int64_t live_;
};

}  // namespace weft

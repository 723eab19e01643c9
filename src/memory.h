// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "src/cuda/kept_device_blocks.h"
#include "src/memory_blocks.h"
#include "weft/storage.h"
#include "weft/stream.h"

namespace weft {

/// The memory of one thread: what it allocated, counted, and what it keeps for reuse. Only its
/// thread allocates and counts; what another thread frees waits in an inbox. It outlives its thread
/// until the last of its memory is freed.
class Heap {
 public:
  /// The calling thread's.
  static Heap& current() {
    Heap* heap = current_;
    return heap ? *heap : make_current();
  }

  /// `bytes` of memory, aligned to 64, and counted; nullptr for `meta`. std::runtime_error when
  /// there is none. A GPU's may be used by the calling thread's current stream at once; by others
  /// after an event of it.
  void* allocate(size_t bytes, Device device, Purpose purpose);
  /// Host memory for the copies of streams, counted as the host's, not kept for reuse.
  void* allocate_pinned(size_t bytes, Purpose purpose);

  struct Freed {
    void* data;
    size_t bytes;
    Device device;
    Purpose purpose;
    bool pinned;
  };
  /// Frees what was allocated here; from any thread. The calling thread's current stream may still
  /// use a GPU's.
  void free(const Freed& freed);

  MemoryStatistics statistics(DeviceKind kind);
  void reset_peak(DeviceKind kind);
  void release_cached();
  /// What a capture took of GPUs and has freed; nothing plays it any more.
  void give_up_capture(uint64_t capture);

  /// Memory for one object of `bytes` (always the same number), kept for reuse by the calling
  /// thread.
  static void* allocate_object(size_t bytes);
  static void free_object(void* object, size_t bytes);

  /// In a child of a process that shared its memory: what the calling thread kept is not there.
  static void forget_kept();

  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

 private:
  /// `shared`: of threads that are ending; keeps nothing and is never deleted.
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
  /// The thread ends: deletes the heap when nothing of it is in use.
  void abandon();
  void count(DeviceKind kind, Purpose purpose, int64_t bytes);

  static thread_local Heap* current_ [[gnu::tls_model("initial-exec")]];

  KeptBlocks kept_;
  /// By another thread than the heap's, whose stream was to be done with a GPU's at `last_use`.
  struct FreedElsewhere {
    Freed freed;
    Event last_use;
  };

  cuda::KeptDeviceBlocks kept_on_devices_;
  std::array<MemoryStatistics, 3> counted_;
  /// Bytes of blocks in use, whole size classes, and their highest number.
  int64_t in_use_ = 0, most_in_use_ = 0;
  void* spare_objects_ = nullptr;
  int spare_count_ = 0;

  std::atomic<bool> has_inbox_{false};
  std::mutex mutex_;
  std::vector<FreedElsewhere> inbox_;
  bool owned_;
  /// Allocations that are not freed; only this thread's until it is abandoned.
  int64_t live_;
};

}  // namespace weft

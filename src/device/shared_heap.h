// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace weft {

class SharedMemory;

/// Memory of this process that the other processes of its host have mapped at the same addresses
/// and read directly. Any thread of the process may allocate.
class SharedHeap {
 public:
  explicit SharedHeap(std::shared_ptr<SharedMemory> memory);
  SharedHeap(const SharedHeap&) = delete;
  SharedHeap& operator=(const SharedHeap&) = delete;

  /// Allocates `bytes` > 0, aligned to 64; from 2 MiB on in huge pages, which it advises and
  /// touches. Returns nullptr when the region is full.
  void* try_allocate(size_t bytes);
  /// As `try_allocate`, but throws std::runtime_error when the region is full.
  void* allocate(size_t bytes);
  /// Frees a block; from 2 MiB on the memory returns to the system.
  void free(void* data, size_t bytes);
  bool contains(const void* data) const {
    const auto at = reinterpret_cast<uintptr_t>(data);
    return at >= begin_ && at < end_;
  }

  /// The heap that this process shares with others and allocates tensors from; null in a process
  /// that runs alone.
  static SharedHeap* of_process() { return of_process_; }
  static void set_of_process(SharedHeap* heap) { of_process_ = heap; }
  /// Called in a child of that process, which does not have the memory: its blocks cannot be freed.
  static void lose() { lost_ = std::exchange(of_process_, nullptr); }
  static bool is_lost(const void* data) { return lost_ && lost_->contains(data); }

 private:
  void* reuse(size_t bytes);
  void* cut(size_t bytes);

  static constinit inline SharedHeap* of_process_ = nullptr;
  static constinit inline SharedHeap* lost_ = nullptr;
  const std::shared_ptr<SharedMemory> memory_;
  const uintptr_t begin_;
  const uintptr_t end_;
  std::mutex mutex_;
  /// The start of the never allocated memory, for large and for small blocks.
  uintptr_t next_;
  uintptr_t small_ = 0;
  uintptr_t small_end_ = 0;
  std::map<size_t, std::vector<void*>> free_;
};

}  // namespace weft

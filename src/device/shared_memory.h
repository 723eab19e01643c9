// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "weft/export.h"
#include "weft/extend/file.h"

namespace weft {

/// Memory that several processes of one host map at the same address. It has no name: processes
/// hand it over by descriptor, no other process can open it, and it is gone with its last user.
/// Zeros at first; pages take memory only once touched.
class SharedMemory : NotCopied {
 public:
  /// The addresses that processes agree on: `index` counts regions of kRegion bytes.
  static constexpr size_t kRegion = size_t{256} << 30;
  static constexpr int kMaxRegions = 96;

  /// Creates memory of `bytes`; throws std::runtime_error naming the call that failed.
  static std::shared_ptr<SharedMemory> create(int index, size_t bytes);
  /// Maps memory that another process created, given its file descriptor.
  static std::shared_ptr<SharedMemory> map(int index, OwnedDescriptor descriptor);
  ~SharedMemory();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  int descriptor() const { return descriptor_.get(); }

  /// Locks the index of this process among those that share the memory; does nothing when another
  /// process has it. The system releases the lock when the process is gone, however it ended.
  void lock_index(int index) const;
  /// Returns true when another process holds the lock of that index.
  bool is_index_locked(int index) const;

 private:
  SharedMemory(int index, OwnedDescriptor descriptor, size_t bytes);

  OwnedDescriptor descriptor_;
  size_t bytes_;
  std::byte* data_;
};

/// Memory of this process that the other processes of its host have mapped at the same addresses
/// and read directly. Any thread of the process may allocate.
class SharedHeap : NotCopied {
 public:
  explicit SharedHeap(std::shared_ptr<SharedMemory> memory);

  /// Allocates `bytes` > 0, aligned to 64; from 2 MiB on in huge pages, which it advises and
  /// touches. Returns nullptr when the region is full.
  void* try_allocate(size_t bytes);
  /// Does what `try_allocate` does, but throws std::runtime_error when the region is full.
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

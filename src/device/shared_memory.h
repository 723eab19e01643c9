// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "src/base/owned_descriptor.h"

namespace weft {

/// Memory that several processes of one host map at the same address. It has no name: processes
/// hand it over by descriptor, no other process can open it, and it is gone with its last user.
/// Zeros at first; pages take memory only once touched.
class SharedMemory {
 public:
  /// The addresses that processes agree on: `index` counts regions of kRegion bytes.
  static constexpr size_t kRegion = size_t{256} << 30;
  static constexpr int kMaxRegions = 96;

  /// Creates memory of `bytes`; throws std::runtime_error naming the call that failed.
  static std::shared_ptr<SharedMemory> create(int index, size_t bytes);
  /// Maps memory that another process created, given its file descriptor.
  static std::shared_ptr<SharedMemory> map(int index, OwnedDescriptor descriptor);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  int descriptor() const { return descriptor_.get(); }

  /// Locks the place of this process, a number, among those that share the memory; does nothing
  /// when another process has it. The system releases the lock when the process is gone, however it
  /// ended.
  void lock_place(int place) const;
  /// Returns true when another process holds the lock of that place.
  bool is_place_locked(int place) const;

 private:
  SharedMemory(int index, OwnedDescriptor descriptor, size_t bytes);

  OwnedDescriptor descriptor_;
  size_t bytes_;
  std::byte* data_;
};

}  // namespace weft

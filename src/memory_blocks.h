// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace weft {

/// From this size on memory is mapped by itself, aligned to it, and advised to use huge pages:
/// first touch is 7 times faster.
inline constexpr size_t kHugePage = size_t{2} << 20;
inline constexpr size_t kMemoryAlignment = 64;

/// Address sanitizers find a use after free only in memory that is not kept.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kKeepsMemory = false;
#else
inline constexpr bool kKeepsMemory = true;
#endif

/// Sizes up to 1 KiB in steps of 64 bytes, then eight to a power of two (at most 1/8 is wasted); up
/// to 2^48 bytes, all that a process can address.
inline constexpr int kSizeClasses = 320;
int size_class(size_t bytes);
size_t class_bytes(int size_class);

/// Memory from the operating system; std::runtime_error when there is none.
void* system_allocate(size_t bytes);
/// nullptr when there is none.
void* try_system_allocate(size_t bytes);
void system_free(void* data, size_t bytes);

/// Free blocks kept for reuse, a list a size class. The first bytes of a block link it to the next.
class KeptBlocks {
 public:
  KeptBlocks() = default;
  KeptBlocks(const KeptBlocks&) = delete;
  KeptBlocks& operator=(const KeptBlocks&) = delete;
  ~KeptBlocks() { shrink_to(0); }

  /// A block of that class; nullptr when none is kept.
  void* take(int size_class) {
    auto& head = heads_[static_cast<size_t>(size_class)];
    Link* block = head;
    if (!block) return nullptr;
    head = block->next;
    bytes_ -= static_cast<int64_t>(class_bytes(size_class));
    return block;
  }
  void put(void* data, int size_class) {
    auto& head = heads_[static_cast<size_t>(size_class)];
    head = new (data) Link{head};
    bytes_ += static_cast<int64_t>(class_bytes(size_class));
  }
  int64_t bytes() const { return bytes_; }
  /// Loses all blocks.
  void forget() {
    heads_.fill(nullptr);
    bytes_ = 0;
  }
  /// Gives blocks back to the system, the largest first, until at most `bytes` are kept.
  void shrink_to(int64_t bytes);

 private:
  struct Link {
    Link* next;
  };
  std::array<Link*, kSizeClasses> heads_{};
  int64_t bytes_ = 0;
};

}  // namespace weft

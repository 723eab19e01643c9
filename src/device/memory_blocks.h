// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <new>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "weft/export.h"
#include "weft/stream.h"

namespace weft {

/// Blocks of at least this size are mapped separately, aligned to it, and advised to use huge
/// pages: the first touch is 7 times faster.
inline constexpr size_t kHugePage = size_t{2} << 20;
inline constexpr size_t kMemoryAlignment = 64;

/// Address sanitizers detect a use after free only if freed memory is not kept for reuse.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kKeepsMemory = false;
#else
inline constexpr bool kKeepsMemory = true;
#endif

/// Sizes up to 1 KiB in steps of 64 bytes, then eight classes per power of two (at most 1/8 is
/// wasted), up to 2^48 bytes, the address space of a process.
inline constexpr int kSizeClasses = 320;
int size_class(size_t bytes);
size_t class_bytes(int size_class);

/// Returns memory from the operating system; std::runtime_error when it has none.
void* system_allocate(size_t bytes);
/// Returns nullptr when the system has none.
void* try_system_allocate(size_t bytes);
void system_free(void* data, size_t bytes);

/// Free blocks kept for reuse, one list per size class. A block's first bytes link to the next.
class KeptBlocks : NotCopied {
 public:
  KeptBlocks() = default;
  ~KeptBlocks() { shrink_to(0); }

  /// Returns a block of that class; nullptr when none is kept.
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
  /// Drops all blocks without freeing them.
  void forget() {
    heads_.fill(nullptr);
    bytes_ = 0;
  }
  /// Returns blocks to the system, the largest first, until at most `bytes` are kept.
  void shrink_to(int64_t bytes);

 private:
  struct Link {
    Link* next;
  };
  std::array<Link*, kSizeClasses> heads_{};
  int64_t bytes_ = 0;
};

/// Each thread keeps the memory of freed objects of type T for reuse, up to a bound. T inherits the
/// operators, or calls them where it makes and destroys its objects itself, as Storage does.
template <class T> class Pooled {
 public:
  static void* operator new(size_t) {
    Kept* first = kept_.first;
    if (!first) return ::operator new(sizeof(T));
    kept_.first = first->next;
    --kept_.count;
    return first;
  }

  static void operator delete(void* memory) {
    if (kept_.count >= kept_.most) [[unlikely]] {
      if (!may_keep()) return ::operator delete(memory);
    }
    kept_.first = new (memory) Kept{kept_.first};
    ++kept_.count;
  }

 private:
  struct Kept {
    Kept* next;
  };
  struct List {
    Kept* first = nullptr;
    int count = 0;
    /// 0 before the first object is freed and after the thread has ended.
    int most = 0;
    bool ended = false;
  };
  /// Frees the list when its thread ends; objects may outlive the thread.
  struct Owner {
    ~Owner() {
      while (kept_.first) ::operator delete(std::exchange(kept_.first, kept_.first->next));
      kept_.count = kept_.most = 0;
      kept_.ended = true;
    }
  };
  static constexpr int kMost = 4096;

  static bool may_keep() {
    if (!kKeepsMemory || kept_.most > 0 || kept_.ended) return false;
    WEFT_STATIC_TLS static thread_local Owner owner;
    kept_.most = kMost;
    return true;
  }

  WEFT_STATIC_TLS static inline constinit thread_local List kept_{};
};

}  // namespace weft

namespace weft::cuda {

/// Device memory that one thread freed and keeps for reuse, separately for each stream in whose
/// scope it was freed: a scope of that stream may use it again at once. Memory that a capture
/// allocates and frees stays reserved for it until `give_up`, because each replay uses it again.
class KeptDeviceBlocks {
 public:
  /// Returns nullptr when the device has no memory left.
  void* take(size_t bytes, Device device);
  void put(void* data, size_t bytes, Device device);
  /// Returns all blocks except the captures' to the devices, after their work is done.
  void release();
  /// Also returns the captures' blocks; their graphs must not be replayed any more.
  void release_all();
  /// The same for one capture's free blocks; blocks in use lose their reservation.
  void give_up(uint64_t capture);
  /// The current stream and `side`, of StreamRole::side, have waited for each other: each gets back
  /// the blocks that were new on it and that the other one freed.
  void exchange(const Stream& side);
  int64_t bytes() const { return bytes_; }
  /// The number of requests that no kept block could satisfy.
  int64_t fresh() const { return fresh_; }

 private:
  struct Place {
    int device;
    /// Null for the compute stream.
    void* stream;
    uint64_t capture;
    auto operator<=>(const Place&) const = default;
  };
  /// One list per size class.
  using Classes = std::vector<std::vector<void*>>;

  static Place place_on(Device device);
  Classes& kept_at(const Place& place);
  /// Returns the blocks of the captures for which `is_given_back` is true; 0 for those of none.
  template <class Is> void give_back(Is is_given_back);

  std::map<Place, Classes> kept_;
  /// Memory that captures allocated, in use or free.
  std::unordered_map<void*, uint64_t> taken_by_captures_;
  /// Blocks that were new on StreamRole::side, in use or free.
  std::unordered_set<void*> of_side_;
  int64_t bytes_ = 0, fresh_ = 0;
};

}  // namespace weft::cuda

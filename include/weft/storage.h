// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "weft/device.h"
#include "weft/export.h"
#include "weft/extend/ref.h"
#include "weft/stream.h"

namespace weft {

/// Uses of memory; statistics are kept by purpose. New memory gets the purpose that `PurposeScope`
/// has set on the calling thread.
enum class Purpose : uint8_t { other, parameters, gradients, optimizer, activations, gathered };
inline constexpr int kPurposes = 6;
WEFT_API std::string_view name_of(Purpose purpose);

/// Sets the purpose of new memory for a scope.
class WEFT_API PurposeScope : NotCopied {
 public:
  explicit PurposeScope(Purpose purpose);
  ~PurposeScope();

 private:
  Purpose before_;
};

/// Bytes of one purpose, for the calling rank.
struct MemoryUse {
  int64_t current = 0, peak = 0;
};

/// Bytes by purpose, for the calling rank. `meta` memory is counted separately, as if allocated.
struct MemoryStatistics {
  std::array<MemoryUse, kPurposes> by_purpose;
  MemoryUse total;
  /// Memory the allocator keeps for reuse.
  int64_t cached = 0;
  /// Requests that the cache could not satisfy.
  int64_t fresh_allocations = 0;
};

WEFT_API MemoryStatistics memory_statistics(DeviceKind kind = DeviceKind::cpu);
/// Sets the peaks to the current bytes.
WEFT_API void reset_peak_memory(DeviceKind kind = DeviceKind::cpu);
/// Returns cached memory of the calling rank to the system.
WEFT_API void release_cached_memory();

class Heap;
class DiskMemory;

/// A block of memory on one device, shared by the tensors that view it. An unbound one has a size
/// but no memory until `bind`.
class WEFT_API Storage final : public RefCounted {
 public:
  /// Allocates `bytes` of memory, aligned to 64 bytes and uninitialised. It counts for the calling
  /// rank until any thread frees it. Throws std::runtime_error when memory is exhausted.
  static Ref<Storage> allocate(size_t bytes, Device device = cpu);
  /// Allocates pinned host memory, which GPUs read and write while the host continues (`transfer`).
  /// Same as `allocate` when there is no GPU.
  static Ref<Storage> allocate_pinned(size_t bytes);
  /// Returns a block without memory; its error when used begins with `name` ("parameter 'wq'").
  static Ref<Storage> unbound(size_t bytes, Device device, std::string name);
  /// Wraps memory that weft does not own; `release` runs when the last handle is dropped.
  static Ref<Storage> wrap(void* data, size_t bytes, Device device,
                           std::function<void()> release = {});

  /// Returns the memory (nullptr for `meta`); std::runtime_error with the block's name when it is
  /// unbound.
  void* data() const {
    if (!data_) [[unlikely]]
      check_bound();
    return data_;
  }
  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  bool is_bound() const { return data_ != nullptr; }
  /// True for a block made by `unbound`: its memory may go before its last handle.
  bool is_bindable() const;
  /// The arrays on disk that the block stands for; null for any other block.
  std::shared_ptr<DiskMemory> on_disk() const;
  void stand_for(const std::shared_ptr<DiskMemory>& arrays) { extra_->on_disk = arrays; }
  /// False for wrapped memory, which its owner may access.
  bool is_own() const { return heap_ != nullptr; }

  /// States that the memory is a copy whose changes would be lost: in-place ops refuse it.
  void mark_copy() { is_copy_ = true; }
  bool is_copy() const { return is_copy_; }

  /// Lets an unbound block use `data`, which the caller keeps alive until `unbind`.
  void bind(void* data);
  void unbind();

  /// The number of in-place changes of the memory.
  uint64_t version() const { return version_; }
  void mark_changed() { ++version_; }
  /// The number of those changes that all ranks of a mesh made alike, through tensors over it.
  uint32_t shared_changes() const { return shared_changes_; }
  void mark_shared_change() { ++shared_changes_; }
  /// States that the values are equal on all ranks, until the next change: ops may combine them
  /// with tensors over a mesh.
  void mark_equal_on_ranks() { equal_version_ = version_; }
  bool is_equal_on_ranks() const { return equal_version_ == version_; }
  /// Called for memory that may change without `mark_changed`.
  void forget_equality() { equal_version_ = ~uint64_t{0}; }
  /// The number of those changes that autograd recorded.
  uint32_t recorded_changes() const { return recorded_changes_; }
  void mark_recorded() {
    ++version_;
    ++recorded_changes_;
  }

  /// Called by Ref.
  static void destroy(Storage* storage);

 private:
  /// Fields that few blocks need: the name of an unbound one and the arrays that it stands for, the
  /// release of a wrapped one.
  struct Extra {
    std::string name;
    std::function<void()> release;
    std::weak_ptr<DiskMemory> on_disk = {};
  };
  Storage(void* data, size_t bytes, Device device) : data_(data), bytes_(bytes), device_(device) {}
  ~Storage() = default;
  static Storage* make(void* data, size_t bytes, Device device);
  void check_bound() const;

  void* data_;
  size_t bytes_;
  uint64_t version_ = 0;
  uint64_t equal_version_ = ~uint64_t{0};
  Device device_;
  Purpose purpose_ = Purpose::other;
  bool pinned_ = false;
  bool is_copy_ = false;
  uint32_t recorded_changes_ = 0;
  uint32_t shared_changes_ = 0;
  /// The heap that allocated the memory; null when this block does not own it.
  Heap* heap_ = nullptr;
  std::unique_ptr<Extra> extra_;
};

}  // namespace weft

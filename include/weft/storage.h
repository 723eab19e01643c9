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
#include "weft/ref.h"
#include "weft/stream.h"

namespace weft {

/// What memory is for: statistics are kept by purpose. New memory gets the one in force in the
/// calling thread (`PurposeScope`).
enum class Purpose : uint8_t { other, parameters, gradients, optimizer, activations, gathered };
inline constexpr int kPurposes = 6;
WEFT_API std::string_view name_of(Purpose purpose);

/// Sets the purpose of new memory for a scope.
class WEFT_API PurposeScope {
 public:
  explicit PurposeScope(Purpose purpose);
  ~PurposeScope();
  PurposeScope(const PurposeScope&) = delete;
  PurposeScope& operator=(const PurposeScope&) = delete;

 private:
  Purpose before_;
};

/// Bytes of one purpose, of the calling rank.
struct MemoryUse {
  int64_t current = 0;
  int64_t peak = 0;
};

/// Bytes by purpose, of the calling rank; `meta` memory is counted apart, as if it were there.
struct MemoryStatistics {
  std::array<MemoryUse, kPurposes> by_purpose;
  MemoryUse total;
  /// Memory the allocator keeps for reuse.
  int64_t cached = 0;
  /// Requests that the cache could not serve.
  int64_t fresh_allocations = 0;
};

WEFT_API MemoryStatistics memory_statistics(DeviceKind kind = DeviceKind::cpu);
/// Peaks start again from the current bytes.
WEFT_API void reset_peak_memory(DeviceKind kind = DeviceKind::cpu);
/// Gives cached memory of the calling rank back to the system.
WEFT_API void release_cached_memory();

class Heap;

/// A block of memory on one device, shared by the tensors that view it. An unbound one has a size
/// but no memory until `bind`.
class WEFT_API Storage final : public RefCounted {
 public:
  /// `bytes` of new memory, aligned to 64 bytes, not initialised; counted for the calling rank
  /// until it is freed, by whichever thread. std::runtime_error when there is not enough.
  static Ref<Storage> allocate(size_t bytes, Device device = cpu);
  /// Host memory that GPUs read and write while the host does other things (`transfer`). As
  /// `allocate` where there is no GPU.
  static Ref<Storage> allocate_pinned(size_t bytes);
  /// A block without memory; `name` ("parameter 'wq'") begins the error when it is used unbound.
  static Ref<Storage> unbound(size_t bytes, Device device, std::string name);
  /// Memory of somebody else; `release` runs when the last handle is gone.
  static Ref<Storage> wrap(void* data, size_t bytes, Device device,
                           std::function<void()> release = {});

  /// The memory; std::runtime_error naming the block when it is unbound (never for `meta`:
  /// nullptr).
  void* data() const {
    if (!data_) [[unlikely]]
      check_bound();
    return data_;
  }
  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  bool is_bound() const { return data_ != nullptr; }
  /// True for an unbound one, bound or not: its memory may go before its last handle does.
  bool is_bindable() const;
  /// False for memory of somebody else, who may look at it.
  bool is_own() const { return heap_ != nullptr; }

  /// Lets an unbound block use `data`, which the caller keeps alive until `unbind`.
  void bind(void* data);
  void unbind();

  /// How often the memory was changed in place.
  uint64_t version() const { return version_; }
  void mark_changed() { ++version_; }

  /// For Ref.
  static void destroy(Storage* storage);

 private:
  /// What few blocks have: the name of an unbound one, the release of a wrapped one.
  struct Extra {
    std::string name;
    std::function<void()> release;
  };
  Storage(void* data, size_t bytes, Device device) : data_(data), bytes_(bytes), device_(device) {}
  ~Storage() = default;
  static Storage* make(void* data, size_t bytes, Device device);
  void check_bound() const;

  void* data_;
  size_t bytes_;
  uint64_t version_ = 0;
  Device device_;
  Purpose purpose_ = Purpose::other;
  bool pinned_ = false;
  /// The heap that allocated the memory; null where it is not this block's.
  Heap* heap_ = nullptr;
  std::unique_ptr<Extra> extra_;
};

}  // namespace weft

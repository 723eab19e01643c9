// SPDX-License-Identifier: Apache-2.0
#include "weft/storage.h"

#include <new>
#include <utility>

#include "src/device/memory.h"
#include "src/device/pooled.h"
#include "weft/error.h"

namespace weft {

static constexpr std::array<std::string_view, kPurposes> kPurposeNames = {
    "other", "parameters", "gradients", "optimizer", "activations", "gathered"};

WEFT_STATIC_TLS static thread_local Purpose purpose_in_force = Purpose::other;

/// Address of blocks of zero bytes, so that they count as bound.
alignas(kMemoryAlignment) static std::byte no_bytes[kMemoryAlignment];

std::string_view name_of(Purpose purpose) { return kPurposeNames[static_cast<size_t>(purpose)]; }

PurposeScope::PurposeScope(Purpose purpose) : before_(std::exchange(purpose_in_force, purpose)) {}

PurposeScope::~PurposeScope() { purpose_in_force = before_; }

MemoryStatistics memory_statistics(DeviceKind kind) { return Heap::current().statistics(kind); }

void reset_peak_memory(DeviceKind kind) { Heap::current().reset_peak(kind); }

void release_cached_memory() { Heap::current().release_cached(); }

Storage* Storage::make(void* data, size_t bytes, Device device) {
  return new (Pooled<Storage>::operator new(sizeof(Storage))) Storage(data, bytes, device);
}

Ref<Storage> Storage::allocate(size_t bytes, Device device) {
  if (device.kind == DeviceKind::cuda) check_available(device);
  if (bytes == 0) return Ref<Storage>::first(make(no_bytes, 0, device));
  Heap& heap = Heap::current();
  void* data = heap.allocate(bytes, device, purpose_in_force);
  Storage* storage = make(data, bytes, device);
  storage->heap_ = &heap;
  storage->purpose_ = purpose_in_force;
  return Ref<Storage>::first(storage);
}

Ref<Storage> Storage::allocate_pinned(size_t bytes) {
  if (bytes == 0 || device_count(DeviceKind::cuda) == 0) return allocate(bytes, cpu);
  Heap& heap = Heap::current();
  Storage* storage = make(heap.allocate_pinned(bytes, purpose_in_force), bytes, cpu);
  storage->heap_ = &heap;
  storage->purpose_ = purpose_in_force;
  storage->pinned_ = true;
  return Ref<Storage>::first(storage);
}

Ref<Storage> Storage::unbound(size_t bytes, Device device, std::string name) {
  Ref storage(make(nullptr, bytes, device));
  storage->extra_ = std::make_unique<Extra>(Extra{std::move(name), {}});
  return storage;
}

Ref<Storage> Storage::wrap(void* data, size_t bytes, Device device, std::function<void()> release) {
  Ref storage(make(data || bytes ? data : no_bytes, bytes, device));
  if (release) storage->extra_ = std::make_unique<Extra>(Extra{{}, std::move(release)});
  return storage;
}

void Storage::destroy(Storage* storage) {
  if (storage->heap_) {
    storage->heap_->free(
        {storage->data_, storage->bytes_, storage->device_, storage->purpose_, storage->pinned_});
  } else if (storage->extra_ && storage->extra_->release) {
    storage->extra_->release();
  }
  storage->~Storage();
  Pooled<Storage>::operator delete(storage);
}

bool Storage::is_bindable() const { return !heap_ && extra_ && !extra_->name.empty(); }

void Storage::bind(void* data) {
  if (!is_bindable()) fail("storage: the block is bound already, expected an unbound one");
  data_ = data || bytes_ ? data : no_bytes;
}

void Storage::unbind() {
  if (!is_bindable()) fail("storage: the block has memory of its storage, expected a bound one");
  data_ = nullptr;
}

void Storage::check_bound() const {
  if (device_.kind == DeviceKind::meta) return;
  const bool named = extra_ && !extra_->name.empty();
  throw_runtime_error(concat(named ? std::string_view(extra_->name) : "storage",
                             ": the block is not gathered; its ", bytes_,
                             " bytes have memory only while they are bound"));
}

}  // namespace weft

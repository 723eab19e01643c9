// SPDX-License-Identifier: Apache-2.0
#include "src/device/memory.h"

#include <malloc.h>

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "src/device/cuda/runtime.h"
#include "src/device/shared_memory.h"
#include "weft/error.h"

namespace weft {

/// Used and cached memory together may reach 1.25 times the peak use, plus this much.
static constexpr int64_t kKeptAlways = int64_t{64} << 20;

thread_local Heap* Heap::current_ = nullptr;

/// Abandons the heap when its thread ends.
struct HeapOwner {
  Heap* heap;
  ~HeapOwner() {
    // Objects that this thread destroys later use the heap of ending threads.
    static Heap* const shared = new Heap(true);
    Heap::current_ = shared;
    heap->abandon();
  }
};

Heap& Heap::make_current() {
  thread_local HeapOwner owner{new Heap(false)};
  current_ = owner.heap;
  return *current_;
}

void Heap::count(DeviceKind kind, Purpose purpose, int64_t bytes) {
  MemoryStatistics& statistics = counted_[static_cast<size_t>(kind)];
  MemoryUse& use = statistics.by_purpose[static_cast<size_t>(purpose)];
  use.current += bytes;
  use.peak = std::max(use.peak, use.current);
  statistics.total.current += bytes;
  statistics.total.peak = std::max(statistics.total.peak, statistics.total.current);
  if (watch) [[unlikely]]
    watch->counted(kind, bytes);
}

void* Heap::allocate(size_t bytes, Device device, Purpose purpose) {
  if (!owned_) return allocate_shared(bytes, device);
  if (has_inbox_.load(std::memory_order_relaxed)) empty_inbox();
  void* data = nullptr;
  if (device.kind == DeviceKind::cpu) {
    data = allocate_on_cpu(bytes);
  } else if (device.kind == DeviceKind::cuda) {
    data = allocate_on_device(bytes, device);
  }
  ++live_;
  count(device.kind, purpose, static_cast<int64_t>(bytes));
  return data;
}

void* Heap::allocate_on_cpu(size_t bytes) {
  const int index = size_class(bytes);
  if (index >= kSizeClasses) [[unlikely]]
    fail_call("mmap", bytes, " bytes of memory are not available");
  void* data = kKeepsMemory ? kept_.take(index) : nullptr;
  if (!data) data = allocate_fresh(index, bytes);
  in_use_ += static_cast<int64_t>(class_bytes(index));
  most_in_use_ = std::max(most_in_use_, in_use_);
  return data;
}

void* Heap::allocate_on_device(size_t bytes, Device device) {
  if (void* data = kept_on_devices_.take(bytes, device)) return data;
  const MemoryStatistics& statistics = counted_[static_cast<size_t>(device.kind)];
  std::string by_purpose;
  for (int i = 0; i < kPurposes; ++i) {
    const int64_t used = statistics.by_purpose[static_cast<size_t>(i)].current;
    if (used > 0) by_purpose += concat(", ", name_of(static_cast<Purpose>(i)), " ", used);
  }
  const cuda::DeviceMemory memory = cuda::memory_of(device.index);
  throw_runtime_error(concat("storage: ", device, " has no ", bytes, " bytes left: ", memory.free,
                             " of ", memory.total, " are free; of this rank are ",
                             statistics.total.current, by_purpose));
}

void* Heap::allocate_shared(size_t bytes, Device device) {
  const std::lock_guard lock(mutex_);
  ++live_;
  if (device.kind == DeviceKind::cuda) return allocate_on_device(bytes, device);
  return device.kind == DeviceKind::meta ? nullptr
                                         : system_allocate(class_bytes(size_class(bytes)));
}

void* Heap::allocate_fresh(int size_class, size_t bytes) {
  ++counted_[static_cast<size_t>(DeviceKind::cpu)].fresh_allocations;
  // The sanitizers detect overruns only past the requested size.
  const size_t size = kKeepsMemory ? class_bytes(size_class) : std::max<size_t>(bytes, 1);
  const int64_t used = in_use_ + static_cast<int64_t>(size);
  const int64_t most = std::max(most_in_use_, used);
  kept_.shrink_to(std::max<int64_t>(0, most + most / 4 + kKeptAlways - used));
  if (void* data = try_system_allocate(size)) return data;
  kept_.shrink_to(0);
  return system_allocate(size);
}

void* Heap::allocate_pinned(size_t bytes, Purpose purpose) {
  void* const data = cuda::allocate_pinned(bytes);
  if (owned_) {
    ++live_;
    count(DeviceKind::cpu, purpose, static_cast<int64_t>(bytes));
  } else {
    const std::lock_guard lock(mutex_);
    ++live_;
  }
  return data;
}

void Heap::free(const Freed& freed) {
  if (SharedHeap::is_lost(freed.data)) [[unlikely]]
    return;
  if (this == current_ && owned_) {
    free_here(freed);
  } else {
    free_elsewhere(freed);
  }
}

void Heap::free_here(const Freed& freed) {
  --live_;
  count(freed.device.kind, freed.purpose, -static_cast<int64_t>(freed.bytes));
  if (freed.pinned) {
    cuda::free_pinned(freed.data);
  } else if (freed.device.kind == DeviceKind::cuda) {
    kept_on_devices_.put(freed.data, freed.bytes, freed.device);
  } else if (freed.device.kind == DeviceKind::cpu) {
    const int index = size_class(freed.bytes);
    in_use_ -= static_cast<int64_t>(class_bytes(index));
    if (kKeepsMemory) {
      kept_.put(freed.data, index);
    } else {
      system_free(freed.data, freed.bytes);
    }
  }
}

/// Returns an event after the current stream's last use of memory that another thread owns.
static Event last_use(const Heap::Freed& freed) noexcept {
  if (freed.device.kind != DeviceKind::cuda) return {};
  try {
    return Event::record(current_stream(freed.device));
  } catch (const std::exception&) {
    return {};  // a device that has failed uses nothing any more
  }
}

void Heap::free_elsewhere(const Freed& freed) {
  std::unique_lock lock(mutex_);
  if (owned_) {
    inbox_.push_back({freed, last_use(freed)});
    has_inbox_.store(true, std::memory_order_relaxed);
    return;
  }
  const bool last = --live_ == 0;
  lock.unlock();
  if (freed.pinned) {
    cuda::free_pinned(freed.data);
  } else if (freed.device.kind == DeviceKind::cuda) {
    cuda::free_on_device(freed.device.index, freed.data);
  } else if (freed.device.kind == DeviceKind::cpu) {
    system_free(freed.data, class_bytes(size_class(freed.bytes)));
  }
  if (!last) return;
  delete this;
#ifdef __GLIBC__
  // malloc keeps free pages of each ended thread's arena otherwise: ranks that leave tensors in
  // garbage would take more memory in every run.
  if (kKeepsMemory) ::malloc_trim(0);
#endif
}

void Heap::empty_inbox() {
  std::vector<FreedElsewhere> freed;
  {
    const std::lock_guard lock(mutex_);
    freed.swap(inbox_);
    has_inbox_.store(false, std::memory_order_relaxed);
  }
  for (const FreedElsewhere& one : freed) {
    if (one.last_use.empty()) {
      free_here(one.freed);
      continue;
    }
    // The memory was used by the other thread's stream and, before that, by this thread's.
    const Stream compute = stream_for(one.freed.device, StreamRole::compute);
    const StreamScope scope(compute);
    one.last_use.wait(compute);
    free_here(one.freed);
  }
}

void Heap::abandon() {
  std::unique_lock lock(mutex_);
  for (const FreedElsewhere& one : std::exchange(inbox_, {})) free_here(one.freed);
  kept_.shrink_to(0);
  kept_on_devices_.release_all();
  owned_ = false;
  const bool unused = live_ == 0;
  lock.unlock();
  if (unused) delete this;
}

MemoryStatistics Heap::statistics(DeviceKind kind) {
  empty_inbox();
  MemoryStatistics statistics = counted_[static_cast<size_t>(kind)];
  if (kind == DeviceKind::cpu) statistics.cached = kept_.bytes();
  if (kind == DeviceKind::cuda) {
    statistics.cached = kept_on_devices_.bytes();
    statistics.fresh_allocations = kept_on_devices_.fresh();
  }
  return statistics;
}

void Heap::reset_peak(DeviceKind kind) {
  empty_inbox();
  MemoryStatistics& statistics = counted_[static_cast<size_t>(kind)];
  statistics.total.peak = statistics.total.current;
  for (MemoryUse& use : statistics.by_purpose) use.peak = use.current;
}

void Heap::release_cached() {
  empty_inbox();
  kept_.shrink_to(0);
  kept_on_devices_.release();
}

void Heap::give_up_capture(uint64_t capture) {
  empty_inbox();
  kept_on_devices_.give_up(capture);
}

void Heap::forget_kept() {
  if (current_) current_->kept_.forget();
}

WEFT_STATIC_TLS static thread_local Purpose purpose_in_force = Purpose::other;

/// Address of blocks of zero bytes, so that they count as bound.
alignas(kMemoryAlignment) static std::byte no_bytes[kMemoryAlignment];

std::string_view name_of(Purpose purpose) {
  static constexpr std::array<std::string_view, kPurposes> names = {
      "other", "parameters", "gradients", "optimizer", "activations", "gathered"};
  return names[static_cast<size_t>(purpose)];
}

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

std::shared_ptr<DiskMemory> Storage::on_disk() const {
  return extra_ ? extra_->on_disk.lock() : nullptr;
}

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

// SPDX-License-Identifier: Apache-2.0
#include "src/device/memory_blocks.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "src/device/cuda/runtime.h"
#include "src/device/shared_memory.h"
#include "weft/context.h"
#include "weft/error.h"

namespace weft {

static constexpr size_t kSmallBytes = 1024;
static constexpr int kSmallClasses = kSmallBytes / kMemoryAlignment;

int size_class(size_t bytes) {
  if (bytes <= kSmallBytes) return static_cast<int>((bytes + 63) / kMemoryAlignment) - (bytes > 0);
  const int power = static_cast<int>(std::bit_width(bytes - 1)) - 1;
  const int eighth = static_cast<int>((bytes - 1) >> (power - 3)) & 7;
  return kSmallClasses + (power - 10) * 8 + eighth;
}

size_t class_bytes(int size_class) {
  if (size_class < kSmallClasses) return static_cast<size_t>(size_class + 1) * kMemoryAlignment;
  const int power = (size_class - kSmallClasses) / 8 + 10;
  const int eighth = (size_class - kSmallClasses) % 8;
  return static_cast<size_t>(8 + eighth + 1) << (power - 3);
}

static constexpr bool is_mapped(size_t bytes) { return kKeepsMemory && bytes >= kHugePage; }

/// Maps one extra huge page and unmaps the parts before and after the aligned block.
static void* map_huge(size_t bytes) {
  void* raw =
      mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  auto* begin = static_cast<char*>(raw);
  const size_t before = -reinterpret_cast<uintptr_t>(begin) % kHugePage;
  if (before > 0) munmap(begin, before);
  munmap(begin + before + bytes, kHugePage - before);
  // This is only advice: without huge pages the memory is the same, but slower.
  madvise(begin + before, bytes, MADV_HUGEPAGE);
  return begin + before;
}

void* try_system_allocate(size_t bytes) {
  // Other processes may read the memory in place; below a page copying is as fast.
  constexpr size_t least = 4096;
  if (SharedHeap* heap = SharedHeap::of_process(); heap && kKeepsMemory && bytes >= least) {
    // When the shared heap is fragmented, private memory is used; other processes copy that.
    if (void* data = heap->try_allocate(bytes)) return data;
  }
  if (is_mapped(bytes)) return map_huge(bytes);
  void* data = nullptr;
  return posix_memalign(&data, kMemoryAlignment, bytes) == 0 ? data : nullptr;
}

void* system_allocate(size_t bytes) {
  void* data = try_system_allocate(bytes);
  if (!data)
    fail_call(is_mapped(bytes) ? "mmap" : "posix_memalign", bytes,
              " bytes of memory are not available");
  return data;
}

void system_free(void* data, size_t bytes) {
  SharedHeap* heap = SharedHeap::of_process();
  if (heap && heap->contains(data)) {
    heap->free(data, bytes);
  } else if (is_mapped(bytes)) {
    munmap(data, bytes);
  } else {
    std::free(data);
  }
}

void KeptBlocks::shrink_to(int64_t bytes) {
  for (int i = kSizeClasses - 1; i >= 0 && bytes_ > bytes; --i) {
    while (bytes_ > bytes) {
      void* block = take(i);
      if (!block) break;
      system_free(block, class_bytes(i));
    }
  }
}

}  // namespace weft

namespace weft::cuda {

KeptDeviceBlocks::Place KeptDeviceBlocks::place_on(Device device) {
  const Stream& stream = Context::current().stream;
  const bool is_other =
      stream.handle && stream.device == device && stream != stream_for(device, StreamRole::compute);
  return {device.index, is_other ? stream.handle : nullptr, capture_number()};
}

KeptDeviceBlocks::Classes& KeptDeviceBlocks::kept_at(const Place& place) {
  Classes& classes = kept_[place];
  if (classes.empty()) classes.resize(kSizeClasses);
  return classes;
}

void* KeptDeviceBlocks::take(size_t bytes, Device device) {
  const int index = size_class(bytes);
  if (index >= kSizeClasses) return nullptr;
  const size_t size = class_bytes(index);
  const Place place = place_on(device);
  void* data = nullptr;
  if (auto& blocks = kept_at(place)[static_cast<size_t>(index)]; !blocks.empty()) {
    data = blocks.back();
    blocks.pop_back();
    bytes_ -= static_cast<int64_t>(size);
  } else {
    ++fresh_;
    data = allocate_on_device(device.index, size);
    if (!data && place.capture == 0) {  // freeing may synchronise, which would invalidate a capture
      release();
      data = allocate_on_device(device.index, size);
    }
    if (data && place.stream && is_side(Context::current().stream)) of_side_.insert(data);
  }
  if (data && place.capture != 0) taken_by_captures_[data] = place.capture;
  return data;
}

void KeptDeviceBlocks::put(void* data, size_t bytes, Device device) {
  const int index = size_class(bytes);
  Place place = place_on(device);
  if (!taken_by_captures_.empty()) {
    const auto taken = taken_by_captures_.find(data);
    if (taken != taken_by_captures_.end()) place.capture = taken->second;
  }
  kept_at(place)[static_cast<size_t>(index)].push_back(data);
  bytes_ += static_cast<int64_t>(class_bytes(index));
}

void KeptDeviceBlocks::exchange(const Stream& side) {
  const Place here = place_on(side.device);
  if (here.capture != 0) return;
  Classes &own = kept_at(here), &aside = kept_at({here.device, side.handle, 0});
  const auto give = [](std::vector<void*>& from, std::vector<void*>& to, auto stays) {
    const auto given = std::stable_partition(from.begin(), from.end(), stays);
    to.insert(to.end(), given, from.end());
    from.erase(given, from.end());
  };
  for (size_t index = 0; index < own.size(); ++index) {
    give(own[index], aside[index], [&](void* data) { return !of_side_.contains(data); });
    give(aside[index], own[index], [&](void* data) { return of_side_.contains(data); });
  }
}

template <class Is> void KeptDeviceBlocks::give_back(Is is_given_back) {
  for (auto& [place, classes] : kept_) {
    if (!is_given_back(place.capture)) continue;
    for (size_t index = 0; index < classes.size(); ++index) {
      for (void* data : classes[index]) {
        of_side_.erase(data);
        free_on_device(place.device, data);  // waits for the device's work
      }
      bytes_ -= static_cast<int64_t>(classes[index].size() * class_bytes(static_cast<int>(index)));
      classes[index].clear();
    }
  }
}

void KeptDeviceBlocks::release() {
  give_back([](uint64_t capture) { return capture == 0; });
}

void KeptDeviceBlocks::release_all() {
  give_back([](uint64_t) { return true; });
}

void KeptDeviceBlocks::give_up(uint64_t capture) {
  give_back([capture](uint64_t one) { return one == capture; });
  std::erase_if(kept_, [&](const auto& kept) { return kept.first.capture == capture; });
  std::erase_if(taken_by_captures_, [&](const auto& taken) { return taken.second == capture; });
}

}  // namespace weft::cuda

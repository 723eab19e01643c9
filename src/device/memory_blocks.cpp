// SPDX-License-Identifier: Apache-2.0
#include "src/device/memory_blocks.h"

#include <sys/mman.h>

#include <bit>
#include <cstdlib>

#include "src/device/shared_memory.h"
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

/// Memory that other processes may read in place; below a page copying is as fast.
static SharedHeap* shared_heap_for(size_t bytes) {
  constexpr size_t least = 4096;
  return kKeepsMemory && bytes >= least ? SharedHeap::of_process() : nullptr;
}

/// Maps one extra huge page and unmaps the parts before and after the aligned block.
static void* map_huge(size_t bytes) {
  void* raw =
      mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  auto* begin = static_cast<char*>(raw);
  const size_t before = -reinterpret_cast<uintptr_t>(begin) % kHugePage;
  if (before > 0) munmap(begin, before);
  munmap(begin + before + bytes, kHugePage - before);
  // Only advice: without huge pages the memory is the same, but slower.
  madvise(begin + before, bytes, MADV_HUGEPAGE);
  return begin + before;
}

void* try_system_allocate(size_t bytes) {
  if (SharedHeap* heap = shared_heap_for(bytes)) {
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

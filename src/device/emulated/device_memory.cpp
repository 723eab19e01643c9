// SPDX-License-Identifier: Apache-2.0
#include "src/device/emulated/device_memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <map>
#include <mutex>

namespace weft::cuda::emulated {

static constexpr size_t kDeviceBytes = size_t{16} << 30;

#if defined(__SANITIZE_ADDRESS__)

void* allocate_device_memory(size_t bytes) {
  return bytes > kDeviceBytes ? nullptr : std::aligned_alloc(256, (bytes + 255) / 256 * 256);
}
void free_device_memory(void* data) noexcept { std::free(data); }
DeviceMemoryOpen::DeviceMemoryOpen() = default;
DeviceMemoryOpen::~DeviceMemoryOpen() = default;

#else

namespace {

/// One region of address space, whose used front is protected as a whole.
struct Region {
  std::mutex mutex;
  char* begin = nullptr;
  size_t used = 0;
  int open = 0;
  /// Sizes of the blocks in use, and free blocks by size.
  std::map<void*, size_t> blocks;
  std::multimap<size_t, void*> free;

  Region() {
    void* memory =
        mmap(nullptr, kDeviceBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory != MAP_FAILED) begin = static_cast<char*>(memory);
  }
  void protect() const { mprotect(begin, used, open > 0 ? PROT_READ | PROT_WRITE : PROT_NONE); }
};

Region& region() {
  static auto* const one = new Region;
  return *one;
}

constexpr size_t kPage = 4096;
/// Free blocks of at least this size return their pages: protecting memory visits each page.
constexpr size_t kGivenBack = size_t{256} << 10;

}  // namespace

void* allocate_device_memory(size_t bytes) {
  Region& memory = region();
  const std::lock_guard lock(memory.mutex);
  const size_t size = (bytes + kPage - 1) / kPage * kPage;
  if (const auto kept = memory.free.find(size); kept != memory.free.end()) {
    void* data = kept->second;
    memory.free.erase(kept);
    memory.blocks[data] = size;
    return data;
  }
  if (!memory.begin || memory.used + size > kDeviceBytes) return nullptr;
  void* data = memory.begin + memory.used;
  memory.used += size;
  memory.blocks[data] = size;
  if (memory.open > 0) memory.protect();
  return data;
}

void free_device_memory(void* data) noexcept {
  Region& memory = region();
  const std::lock_guard lock(memory.mutex);
  const auto block = memory.blocks.find(data);
  if (block == memory.blocks.end()) std::abort();
  if (block->second >= kGivenBack) madvise(data, block->second, MADV_DONTNEED);
  memory.free.emplace(block->second, data);
  memory.blocks.erase(block);
}

DeviceMemoryOpen::DeviceMemoryOpen() {
  Region& memory = region();
  const std::lock_guard lock(memory.mutex);
  if (++memory.open == 1) memory.protect();
}

DeviceMemoryOpen::~DeviceMemoryOpen() {
  Region& memory = region();
  const std::lock_guard lock(memory.mutex);
  if (--memory.open == 0) memory.protect();
}

#endif

}  // namespace weft::cuda::emulated

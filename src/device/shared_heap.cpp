// SPDX-License-Identifier: Apache-2.0
#include "src/device/shared_heap.h"

#include <sys/mman.h>

#include "src/device/memory_blocks.h"
#include "src/device/shared_memory.h"
#include "weft/error.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace weft {

SharedHeap::SharedHeap(std::shared_ptr<SharedMemory> memory)
    : memory_(std::move(memory)),
      begin_(reinterpret_cast<uintptr_t>(memory_->data())),
      end_(begin_ + memory_->bytes()),
      next_(begin_) {}

/// Rounds to a few sizes, so that freed blocks are reused.
static size_t rounded_bytes(size_t bytes) { return class_bytes(size_class(bytes)); }

/// Shared memory gets huge pages only by advice on pages that exist, so that each is touched first.
/// On a system without huge pages this is only slower.
static void fill_huge_pages(uintptr_t begin, size_t bytes) {
  for (size_t at = 0; at + kHugePage <= bytes; at += kHugePage) {
    auto* page = reinterpret_cast<volatile std::byte*>(begin + at);
    *page = std::byte{0};
    if (madvise(reinterpret_cast<void*>(begin + at), kHugePage, MADV_COLLAPSE) != 0) return;
  }
}

void* SharedHeap::reuse(size_t bytes) {
  const auto found = free_.find(bytes);
  if (found == free_.end() || found->second.empty()) return nullptr;
  void* data = found->second.back();
  found->second.pop_back();
  return data;
}

void* SharedHeap::cut(size_t bytes) {
  const bool is_small = bytes < kHugePage;
  if (is_small && small_ + bytes <= small_end_) {
    small_ += bytes;
    return reinterpret_cast<void*>(small_ - bytes);
  }
  const size_t whole = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  if (end_ - next_ < whole) return nullptr;
  const uintptr_t begin = next_;
  next_ += whole;
  if (is_small) {
    fill_huge_pages(begin, whole);
    small_ = begin + bytes;
    small_end_ = begin + whole;
  }
  return reinterpret_cast<void*>(begin);
}

void* SharedHeap::allocate(size_t bytes) {
  if (void* data = try_allocate(bytes)) return data;
  fail_call("shared memory", bytes, " bytes are not available; all ", end_ - begin_,
            " addresses of this process are cut up");
}

void* SharedHeap::try_allocate(size_t bytes) {
  bytes = rounded_bytes(bytes);
  void* data = nullptr;
  {
    const std::lock_guard lock(mutex_);
    data = reuse(bytes);
    if (!data) data = cut(bytes);
  }
  if (data && bytes >= kHugePage) fill_huge_pages(reinterpret_cast<uintptr_t>(data), bytes);
  return data;
}

void SharedHeap::free(void* data, size_t bytes) {
  bytes = rounded_bytes(bytes);
  if (bytes >= kHugePage) madvise(data, bytes, MADV_REMOVE);
  const std::lock_guard lock(mutex_);
  free_[bytes].push_back(data);
}

}  // namespace weft

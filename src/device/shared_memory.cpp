// SPDX-License-Identifier: Apache-2.0
#include "src/device/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "src/device/memory_blocks.h"
#include "weft/error.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace weft {

/// Far from where programs, their libraries and sanitizers lie.
static constexpr uintptr_t kFirstRegion = uintptr_t{0x200000000000};

SharedMemory::SharedMemory(int index, OwnedDescriptor descriptor, size_t bytes)
    : descriptor_(std::move(descriptor)), bytes_(bytes) {
  void* wanted = reinterpret_cast<void*>(kFirstRegion + static_cast<uintptr_t>(index) * kRegion);
  void* got = mmap(wanted, bytes, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, descriptor_.get(), 0);
  if (got == wanted) {
    data_ = static_cast<std::byte*>(got);
    // A child of this process is not a rank and must not write here.
    madvise(got, bytes, MADV_DONTFORK);
    // A core dump would fill the holes of the region with memory, while its lock is still held.
    madvise(got, bytes, MADV_DONTDUMP);
    return;
  }
  const int error = got == MAP_FAILED ? errno : EEXIST;
  if (got != MAP_FAILED) munmap(got, bytes);
  fail_call("mmap", "of ", bytes, " shared bytes at ", wanted, ": ", std::strerror(error));
}

SharedMemory::~SharedMemory() { munmap(data_, bytes_); }

std::shared_ptr<SharedMemory> SharedMemory::create(int index, size_t bytes) {
  if (bytes > kRegion || index >= kMaxRegions) {
    fail("shared memory: region ", index, " has ", bytes, " bytes, expected at most ", kMaxRegions,
         " regions of ", kRegion);
  }
  OwnedDescriptor descriptor(above_standard(memfd_create("weft", MFD_CLOEXEC)));
  if (descriptor.get() < 0) fail_call("memfd_create", std::strerror(errno));
  if (ftruncate(descriptor.get(), static_cast<off_t>(bytes)) != 0) {
    fail_call("ftruncate", "to ", bytes, " bytes: ", std::strerror(errno));
  }
  return std::shared_ptr<SharedMemory>(new SharedMemory(index, std::move(descriptor), bytes));
}

std::shared_ptr<SharedMemory> SharedMemory::map(int index, OwnedDescriptor descriptor) {
  struct stat status = {};
  if (fstat(descriptor.get(), &status) != 0) fail_call("fstat", std::strerror(errno));
  return std::shared_ptr<SharedMemory>(
      new SharedMemory(index, std::move(descriptor), static_cast<size_t>(status.st_size)));
}

static struct flock lock_of(int index) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = index;
  lock.l_len = 1;
  return lock;
}

void SharedMemory::lock_index(int index) const {
  struct flock lock = lock_of(index);
  if (fcntl(descriptor(), F_SETLK, &lock) == 0 || errno == EACCES || errno == EAGAIN) return;
  fail_call("fcntl", "process ", index, " cannot lock its index: ", std::strerror(errno));
}

bool SharedMemory::is_index_locked(int index) const {
  struct flock lock = lock_of(index);
  return fcntl(descriptor(), F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

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
    std::vector<void*>& freed = free_[bytes];
    data = freed.empty() ? cut(bytes) : freed.back();
    if (!freed.empty()) freed.pop_back();
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

// SPDX-License-Identifier: Apache-2.0
#include "src/device/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "weft/error.h"
#include "weft/extend/descriptor.h"

namespace weft {

/// Far from where programs, their libraries and sanitizers lie.
static constexpr uintptr_t kFirstRegion = uintptr_t{0x200000000000};

static void* region_address(int index) {
  return reinterpret_cast<void*>(kFirstRegion +
                                 static_cast<uintptr_t>(index) * SharedMemory::kRegion);
}

SharedMemory::SharedMemory(int index, OwnedDescriptor descriptor, size_t bytes)
    : descriptor_(std::move(descriptor)), bytes_(bytes) {
  void* wanted = region_address(index);
  void* got = mmap(wanted, bytes, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, descriptor_.get(), 0);
  if (got == wanted) {
    data_ = static_cast<std::byte*>(got);
    // A child of this process is not a rank and must not write here.
    madvise(got, bytes, MADV_DONTFORK);
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

static struct flock lock_of_place(int place) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = place;
  lock.l_len = 1;
  return lock;
}

void SharedMemory::lock_place(int place) const {
  struct flock lock = lock_of_place(place);
  if (fcntl(descriptor(), F_SETLK, &lock) == 0 || errno == EACCES || errno == EAGAIN) return;
  fail_call("fcntl", "process ", place, " cannot lock its place: ", std::strerror(errno));
}

bool SharedMemory::is_place_locked(int place) const {
  struct flock lock = lock_of_place(place);
  return fcntl(descriptor(), F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

}  // namespace weft

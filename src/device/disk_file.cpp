// SPDX-License-Identifier: Apache-2.0
#include "src/device/disk_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <utility>

#include "weft/error.h"
#include "weft/warnings.h"

namespace weft {

std::shared_ptr<DiskFile> DiskFile::in(const std::string& directory) {
  static thread_local std::map<std::string, std::weak_ptr<DiskFile>> files;
  std::weak_ptr<DiskFile>& known = files[directory];
  std::shared_ptr<DiskFile> file = known.lock();
  if (!file) known = file = std::make_shared<DiskFile>(directory);
  return file;
}

static void warn_of_cache(const std::string& directory, int reason) {
  static std::atomic<bool> warned = false;
  if (warned.exchange(true)) return;
  warn("offload: ", directory, " does not support O_DIRECT (", std::strerror(reason),
       "), so that reads and writes pass through the page cache, which is slower");
}

DiskFile::DiskFile(std::string directory) : directory_(std::move(directory)) {
  open_standard_descriptors();
  std::string path = directory_ + "/.weft-offload-XXXXXX";
  // Readable and writable by the user only.
  buffered_ = OwnedDescriptor(above_standard(::mkostemp(path.data(), O_CLOEXEC)));
  if (buffered() < 0) {
    fail("offload: no file can be made in ", in_quotes(directory_), ": ", std::strerror(errno),
         ", expected a directory that can be written");
  }
  const bool is_plain = is_plain_io();
  if (!is_plain) {
    direct_ = OwnedDescriptor(above_standard(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_DIRECT)));
  }
  const int reason = errno;
  ::unlink(path.c_str());
  // The queue warns where plain reads and writes are asked for.
  if (direct_.get() < 0 && !is_plain) warn_of_cache(directory_, reason);
  queue_ = make_disk_queue();
}

std::string DiskFile::title() const { return concat("a file in ", directory_); }

void DiskFile::repeat(DiskRequest& request) {
  if (!std::exchange(refused_, true)) warn_of_cache(directory_, request.error);
  request.file = buffered();
  request.moved = 0;
  request.error = 0;
  request.done = false;
  queue_->start(request);
  queue_->wait(request);
}

/// Bytes that all files of the process hold.
static std::atomic<int64_t> reserved_bytes = 0;

/// The bytes that the system can give to processes and the page cache, at most those of the control
/// group; 0 if they are unknown.
static int64_t available_bytes() {
  std::ifstream memory("/proc/meminfo");
  int64_t available = 0;
  for (std::string line; std::getline(memory, line);) {
    if (std::sscanf(line.c_str(), "MemAvailable: %" SCNd64, &available) == 1) break;
  }
  available *= 1024;
  std::ifstream group("/sys/fs/cgroup/memory.max");
  int64_t most = 0;
  return group >> most ? std::min(available, most) : available;
}

bool DiskFile::fit_page_cache() { return reserved_bytes <= available_bytes() / 2; }

int64_t DiskFile::reserve(int64_t bytes) {
  const int64_t offset = end_;
  if (bytes == 0) return offset;
  const int reason = ::posix_fallocate(buffered(), offset, bytes);
  if (reason != 0) {
    struct statvfs now {};
    const bool known = ::statvfs(directory_.c_str(), &now) == 0;
    const uint64_t free = known ? uint64_t{now.f_bavail} * now.f_frsize : 0;
    fail_call("fallocate", "offload: ", directory_, " has ", free, " bytes free, expected ", bytes,
              ": ", std::strerror(reason));
  }
  end_ += bytes;
  reserved_bytes += bytes;
  return offset;
}

void DiskFile::release(int64_t offset, int64_t bytes) noexcept {
  if (bytes == 0) return;
  reserved_bytes -= bytes;
  [[maybe_unused]] const int ignored =
      ::fallocate(buffered(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
}

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include "weft/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "weft/error.h"

namespace weft {

struct File::Body {
  std::string what;
  std::string path;
  int descriptor = -1;
  int64_t size = 0;
  std::atomic<int64_t> bytes_read{0};

  Body(std::string asking, std::string name) : what(std::move(asking)), path(std::move(name)) {}
  Body(const Body&) = delete;
  Body& operator=(const Body&) = delete;
  ~Body() {
    if (descriptor >= 0) ::close(descriptor);
  }
};

static const char* kind_of_file(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

/// Whether the path is to blame, or the machine and how much of it is in use.
[[noreturn]] static void fail_to_open(const std::string& what, const std::string& path,
                                      int reason) {
  for (const int of_system : {EMFILE, ENFILE, ENOMEM, EIO}) {
    if (reason == of_system) fail_call("open", what, ": ", path, ": ", std::strerror(reason));
  }
  fail(what, ": cannot open ", path, ": ", std::strerror(reason));
}

File::File(const std::string& what, const std::string& path)
    : body_(std::make_shared<Body>(what, path)) {
  // Without O_NONBLOCK, opening a pipe that nobody writes to waits forever.
  body_->descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (body_->descriptor < 0) fail_to_open(what, path, errno);
  struct stat status {};
  if (::fstat(body_->descriptor, &status) != 0) {
    fail_call("fstat", path, ": ", std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    fail(what, ": ", path, " is ", kind_of_file(status.st_mode), ", not a file");
  }
  body_->size = status.st_size;
}

const std::string& File::path() const { return body_->path; }

int64_t File::size() const { return body_->size; }

int64_t File::bytes_read() const { return body_->bytes_read.load(std::memory_order_relaxed); }

void File::read(int64_t offset, std::span<std::byte> into) const {
  size_t done = 0;
  while (done < into.size()) {
    const auto at = static_cast<off_t>(offset) + static_cast<off_t>(done);
    const ssize_t got = ::pread(body_->descriptor, into.data() + done, into.size() - done, at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_call("pread", body_->path, ": ", std::strerror(errno));
    if (got == 0) {
      fail_call("pread", body_->what, ": ", body_->path, " ends at byte ", at, ", but bytes ",
                offset, " to ", offset + static_cast<int64_t>(into.size()),
                " are wanted; it was cut since it was opened with ", body_->size, " bytes");
    }
    done += static_cast<size_t>(got);
  }
  body_->bytes_read.fetch_add(static_cast<int64_t>(done), std::memory_order_relaxed);
}

std::shared_ptr<const std::byte> File::map() const {
  if (body_->size == 0) return nullptr;
  const auto bytes = static_cast<size_t>(body_->size);
  void* start = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, body_->descriptor, 0);
  if (start == MAP_FAILED) fail_call("mmap", body_->path, ": ", std::strerror(errno));
  return {static_cast<const std::byte*>(start),
          [bytes](const std::byte* mapped) { ::munmap(const_cast<std::byte*>(mapped), bytes); }};
}

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace weft {

static constexpr int kFirstFree = STDERR_FILENO + 1;

void open_standard_descriptors() noexcept {
  for (int descriptor = 0; descriptor < kFirstFree; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is this one, unless another thread opens something meanwhile.
    const int opened = ::open("/dev/null", descriptor == STDIN_FILENO ? O_RDONLY : O_WRONLY);
    if (opened >= kFirstFree) ::close(opened);
  }
}

int above_standard(int descriptor) noexcept {
  if (descriptor < 0 || descriptor >= kFirstFree) return descriptor;
  const int moved = ::fcntl(descriptor, F_DUPFD_CLOEXEC, kFirstFree);
  const int reason = errno;
  ::close(descriptor);
  errno = reason;
  return moved;
}

}  // namespace weft

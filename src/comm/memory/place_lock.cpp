// SPDX-License-Identifier: Apache-2.0
#include "src/comm/memory/place_lock.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "weft/error.h"

namespace weft {

static struct flock lock_of_place(int place) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = place;
  lock.l_len = 1;
  return lock;
}

bool lock_place(const SharedMemory& segment, int place) {
  struct flock lock = lock_of_place(place);
  if (fcntl(segment.descriptor(), F_SETLK, &lock) == 0) return true;
  if (errno == EACCES || errno == EAGAIN) return false;
  fail_call("fcntl", "process ", place, " cannot lock its place: ", std::strerror(errno));
}

bool is_place_locked(const SharedMemory& segment, int place) {
  struct flock lock = lock_of_place(place);
  return fcntl(segment.descriptor(), F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

}  // namespace weft

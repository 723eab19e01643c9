// SPDX-License-Identifier: Apache-2.0
#include "src/launch/input.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "src/launch/child.h"

namespace weft {

LaunchInput::LaunchInput() {
  if (!::isatty(STDIN_FILENO)) return;
  LaunchPipe pipe = new_pipe();
  for_child_ = std::move(pipe.read);
  to_child_ = std::move(pipe.write);
  make_nonblocking(to_child_.get());
}

int LaunchInput::for_child() const {
  return for_child_.get() >= 0 ? for_child_.get() : STDIN_FILENO;
}

void LaunchInput::close() {
  for_child_.close();
  to_child_.close();
}

bool LaunchInput::is_in_background() const {
  return to_child_.get() >= 0 && ::tcgetpgrp(STDIN_FILENO) != ::getpgrp();
}

int LaunchInput::descriptor() const {
  if (to_child_.get() < 0) return -1;
  if (!typed_.empty()) return to_child_.get();
  return is_in_background() ? -1 : STDIN_FILENO;
}

short LaunchInput::events() const { return typed_.empty() ? POLLIN : POLLOUT; }

void LaunchInput::pass_on() {
  if (typed_.empty()) {
    char bytes[4096];
    const ssize_t n = ::read(STDIN_FILENO, bytes, sizeof bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n <= 0) return close();
    typed_.assign(bytes, static_cast<size_t>(n));
  }
  const ssize_t n = ::write(to_child_.get(), typed_.data(), typed_.size());
  if (n > 0) typed_.erase(0, static_cast<size_t>(n));
  if (n < 0 && errno != EINTR && errno != EAGAIN) close();
}

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include "src/launch/signals.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "src/launch/child.h"
#include "weft/error.h"

namespace weft {

/// -1: no launch is under way.
static std::atomic<int> launch_signal_pipe{-1};
static_assert(std::atomic<int>::is_always_lock_free);

static constexpr std::array kPassedOn{SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP};

static void pipe_signal(int signal) {
  const int before = errno;
  const auto byte = static_cast<unsigned char>(signal);
  const int to = launch_signal_pipe.load();
  // A full pipe already holds thousands of unread signals.
  if (to >= 0 && ::write(to, &byte, 1) < 0) errno = before;
  errno = before;
}

LaunchSignals::LaunchSignals() {
  LaunchPipe pipe = new_pipe();
  int nobody = -1;
  if (!launch_signal_pipe.compare_exchange_strong(nobody, pipe.write.get())) {
    fail("launch: another launch of this process is under way, expected one at a time");
  }
  read_ = std::move(pipe.read);
  write_ = std::move(pipe.write);
  make_nonblocking(read_.get());
  make_nonblocking(write_.get());
  taken_.reserve(kPassedOn.size() + 2);
  for (const int signal : kPassedOn) {
    // A signal ignored at the start (nohup, a shell's background job) stays ignored for all ranks.
    struct sigaction now {};
    ::sigaction(signal, nullptr, &now);
    if (now.sa_handler != SIG_IGN) take_over(signal);
  }
  take_over(SIGCHLD);
  take_over(SIGPIPE);  // of a reader that is gone, `write` tells
}

void LaunchSignals::take_over(int signal) {
  struct sigaction action {};
  action.sa_handler = pipe_signal;
  action.sa_flags = SA_RESTART;
  sigfillset(&action.sa_mask);
  Taken taken{signal, {}};
  ::sigaction(signal, &action, &taken.before);
  taken_.push_back(taken);
}

LaunchSignals::~LaunchSignals() {
  for (const Taken& taken : taken_) ::sigaction(taken.signal, &taken.before, nullptr);
  launch_signal_pipe.store(-1);
}

std::vector<int> LaunchSignals::take() {
  std::vector<int> signals;
  unsigned char bytes[256];
  for (ssize_t n;
       (n = ::read(read_.get(), bytes, sizeof bytes)) > 0 || (n < 0 && errno == EINTR);) {
    for (ssize_t i = 0; i < n; ++i) {
      if (bytes[i] != SIGCHLD && bytes[i] != SIGPIPE) signals.push_back(bytes[i]);
    }
  }
  return signals;
}

void LaunchSignals::restore_in_child() const {
  for (const Taken& taken : taken_) {
    struct sigaction action {};
    action.sa_handler = taken.before.sa_handler == SIG_IGN ? SIG_IGN : SIG_DFL;
    ::sigaction(taken.signal, &action, nullptr);
  }
}

LaunchSignals::Blocked::Blocked() {
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before_);
}

LaunchSignals::Blocked::~Blocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

std::string name_of_signal(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name ? concat("SIG", name) : concat("signal ", signal);
}

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include "src/launch/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "weft/error.h"

namespace weft {

LaunchPipe new_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail_call("pipe2", "launch: ", std::strerror(errno));
  LaunchPipe made{OwnedDescriptor(above_standard(ends[0])),
                  OwnedDescriptor(above_standard(ends[1]))};
  if (made.read.get() >= 0 && made.write.get() >= 0) return made;
  fail_call("fcntl", "launch: ", std::strerror(errno));
}

void make_nonblocking(int descriptor) {
  ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK);
}

static std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

pid_t start_child(const LaunchChild& child, const LaunchSignals& signals) {
  std::vector<char*> arguments = pointers_to(child.command);
  std::vector<char*> environment = pointers_to(child.environment);
  LaunchPipe news = new_pipe();
  const pid_t launcher = ::getpid();
  sigset_t all, before;
  // Between fork and exec the child may not allocate.
  const auto run = [&] {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // It may have died before the line above.
    if (::getppid() != launcher) ::_exit(127);
    const int in = child.in >= 0 ? child.in : ::open("/dev/null", O_RDONLY);
    if (in != STDIN_FILENO) ::dup2(in, STDIN_FILENO);
    if (child.in < 0 && in != STDIN_FILENO) ::close(in);
    if (::dup2(child.out, STDOUT_FILENO) >= 0 && ::dup2(child.err, STDERR_FILENO) >= 0) {
      signals.restore_in_child();
      ::sigprocmask(SIG_SETMASK, &before, nullptr);
      ::execvpe(arguments[0], arguments.data(), environment.data());
    }
    const int reason = errno;
    [[maybe_unused]] const ssize_t told = ::write(news.write.get(), &reason, sizeof reason);
    ::_exit(127);
  };
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = ::fork();
  if (pid == 0) run();
  int reason = pid < 0 ? errno : 0;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  news.write.close();
  ssize_t got = 0;
  // Ends when exec has closed the other end.
  while (pid > 0 && (got = ::read(news.read.get(), &reason, sizeof reason)) < 0 && errno == EINTR) {
  }
  if (pid > 0 && got == 0) return pid;
  if (pid > 0) ::waitpid(pid, nullptr, 0);
  throw_runtime_error(
      concat("launch: cannot start ", in_quotes(child.command[0]), ": ", std::strerror(reason)));
}

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
  ::sigaction(signal, &action, &taken_.emplace_back(signal, action).second);
}

LaunchSignals::~LaunchSignals() {
  for (const auto& [signal, before] : taken_) ::sigaction(signal, &before, nullptr);
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
  for (const auto& [signal, before] : taken_) {
    struct sigaction action {};
    action.sa_handler = before.sa_handler == SIG_IGN ? SIG_IGN : SIG_DFL;
    ::sigaction(signal, &action, nullptr);
  }
}

std::string name_of_signal(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name ? concat("SIG", name) : concat("signal ", signal);
}

}  // namespace weft

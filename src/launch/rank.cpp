// SPDX-License-Identifier: Apache-2.0
#include "src/launch/rank.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
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

/// Bytes that a ready pipe accepts without blocking its writer.
static constexpr size_t kPipeRoom = 4096;

void LineSink::write() {
  while (!is_empty() && error_ == 0) {
    pollfd ready{descriptor_, POLLOUT, 0};
    if (::poll(&ready, 1, 0) <= 0) return;
    const size_t n = std::min(kPipeRoom, waiting_.size() - written_);
    const ssize_t done = ::write(descriptor_, waiting_.data() + written_, n);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0 && errno == EAGAIN) return;
    if (done < 0) error_ = errno;
    written_ += static_cast<size_t>(std::max<ssize_t>(done, 0));
    if (written_ < kMost) continue;
    waiting_.erase(0, written_);
    written_ = 0;
  }
  waiting_.clear();
  written_ = 0;
}

void RankOutput::add(std::string_view bytes) {
  pending_ += bytes;
  size_t begin = 0;
  for (;;) {
    const size_t end = pending_.find_first_of("\n\r", scanned_);
    scanned_ = std::min(end, pending_.size());
    if (end == pending_.npos) break;
    const bool returns = pending_[end] == '\r';
    // The next byte shows whether this is \r or \r\n.
    if (returns && end + 1 == pending_.size()) break;
    const bool both = returns && pending_[end + 1] == '\n';
    const std::string_view line = std::string_view(pending_).substr(begin, end - begin);
    const std::string_view ends = std::string_view(pending_).substr(end, both ? 2 : 1);
    if (!returns || both || prefix_.empty()) {
      write_line(line, ends);
    } else if (!line.empty()) {
      // A line that its writer writes over: others write meanwhile, so that each state stands
      // alone.
      write_line(line, "\n");
    }
    begin = scanned_ = end + ends.size();
  }
  pending_.erase(0, begin);
  scanned_ -= begin;
  if (pending_.size() < kLongest) return;
  write_line(pending_, "\n");
  pending_.clear();
  scanned_ = 0;
}

void RankOutput::write_line(std::string_view line, std::string_view end) {
  sink_.add(prefix_);
  sink_.add(line);
  sink_.add(end);
}

/// The time for what a rank left running to write its last (a `tee` at the end of its output).
static constexpr std::chrono::milliseconds kLastWords{500};

void RankOutput::read() {
  char bytes[1 << 16];
  if (!is_open() || sink_.is_full()) return;
  // A rank that writes to a reader that is gone gets SIGPIPE, as without a launcher; one whose
  // output finds no space goes on.
  const ssize_t n = sink_.error() == EPIPE ? 0 : ::read(descriptor_.get(), bytes, sizeof bytes);
  quiet_ = n < 0 && errno == EAGAIN;
  if (quiet_ || (n < 0 && errno == EINTR)) return;
  if (n <= 0) return close();
  add({bytes, static_cast<size_t>(n)});
  sink_.write();
}

void RankOutput::close() {
  if (!is_open()) return;
  descriptor_.close();
  if (!prefix_.empty() && pending_.ends_with('\r')) pending_.pop_back();
  if (!pending_.empty()) write_line(pending_, ends_last_ ? "\n" : "");
  pending_.clear();
  scanned_ = 0;
  sink_.write();
}

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

std::string RankExit::in_words() const {
  if (signal == 0) return concat("exited with code ", code);
  return concat("was killed by ", name_of_signal(signal), dumped_core ? " (core dumped)" : "");
}

void LaunchRank::send(int signal) const {
  if (!is_gone()) ::kill(-pid_, signal);
}

bool LaunchRank::look(RankExit& how) {
  if (exited_) return false;
  siginfo_t news{};
  // It stays a zombie: its number is that of its group as long as that may get signals.
  const auto id = static_cast<id_t>(pid_);
  const int failed = ::waitid(P_PID, id, &news, WEXITED | WNOHANG | WNOWAIT);
  if (failed ? errno != ECHILD : news.si_pid == 0) return false;
  exited_ = true;
  exited_at_ = Clock::now();
  out_.look_again();
  err_.look_again();
  if (failed) {  // another thread of this process waited for any child: the exit status is lost
    how = {1, 0, false};
  } else if (news.si_code == CLD_EXITED) {
    how = {news.si_status, 0, false};
  } else {
    how = {128 + news.si_status, news.si_status, news.si_code == CLD_DUMPED};
  }
  return true;
}

bool LaunchRank::is_stopped() const {
  siginfo_t news{};
  const auto id = static_cast<id_t>(pid_);
  return !exited_ && ::waitid(P_PID, id, &news, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
         news.si_pid != 0;
}

void LaunchRank::clear_away(bool gives_up) {
  if (!exited_ || is_gone()) return;
  out_.read();
  err_.read();
  const bool is_late = Clock::now() - exited_at_ > kLastWords;
  for (const RankOutput* output : {&out_, &err_}) {
    if (output->is_open() && !gives_up && !(is_late && output->is_quiet())) return;
  }
  send(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
  out_.close();
  err_.close();
}

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include "src/launch/rank.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "src/launch/signals.h"
#include "weft/error.h"

namespace weft {

/// For what a rank left running to write its last (a `tee` at the end of its output).
static constexpr std::chrono::milliseconds kLastWords{500};

void RankOutput::read() {
  char bytes[1 << 16];
  if (!is_open() || sink_.is_full()) return;
  // A rank that writes to a reader that is gone gets SIGPIPE, as without a launcher; one whose
  // output finds no space goes on.
  const ssize_t n = sink_.error() == EPIPE ? 0 : ::read(descriptor_, bytes, sizeof bytes);
  quiet_ = n < 0 && errno == EAGAIN;
  if (quiet_ || (n < 0 && errno == EINTR)) return;
  if (n <= 0) return close();
  lines_.add({bytes, static_cast<size_t>(n)});
  sink_.write();
}

void RankOutput::close() {
  if (!is_open()) return;
  ::close(descriptor_);
  descriptor_ = -1;
  lines_.finish();
  sink_.write();
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

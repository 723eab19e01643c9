// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/export.h"
#include "weft/extend/file.h"

namespace weft {

/// During its lifetime, the signals that a launcher forwards and the exits of its children are
/// written to a pipe. Only one may exist at a time: std::invalid_argument for a second one.
class LaunchSignals : NotCopied {
 public:
  LaunchSignals();
  ~LaunchSignals();

  /// Readable when a signal has arrived.
  int descriptor() const { return read_.get(); }
  /// The signals that have arrived and are to be forwarded, in order.
  std::vector<int> take();
  /// Called in a new child whose signals are all blocked: ignores the forwarded signals that were
  /// ignored before, and resets the others to their default actions.
  void restore_in_child() const;

 private:
  void take_over(int signal);

  OwnedDescriptor read_, write_;
  /// Each signal taken over, and its action before.
  std::vector<std::pair<int, struct sigaction>> taken_;
};

/// "SIGSEGV", "signal 40".
std::string name_of_signal(int signal);

struct LaunchPipe {
  OwnedDescriptor read, write;
};

/// Opens a pipe on descriptors above those of stdin, stdout and stderr, closed in started programs.
LaunchPipe new_pipe();
void make_nonblocking(int descriptor);

/// A process to start.
struct LaunchChild {
  std::vector<std::string> command;
  /// "NAME=value".
  std::vector<std::string> environment;
  /// The descriptors that become its stdin (-1: empty), stdout and stderr.
  int in, out, err;
};

/// Starts the process in a separate process group; it is killed when the calling thread ends.
/// Throws std::runtime_error with the reason when it cannot be started.
pid_t start_child(const LaunchChild& child, const LaunchSignals& signals);

/// Writes lines of several processes to one descriptor, without ever blocking on it.
class LineSink {
 public:
  explicit LineSink(int descriptor) : descriptor_(descriptor) {}

  void add(std::string_view text) {
    if (error_ == 0) waiting_ += text;
  }
  /// Writes what can be written at once.
  void write();
  int descriptor() const { return descriptor_; }
  bool is_empty() const { return written_ == waiting_.size(); }
  /// True when callers should wait before they add more.
  bool is_full() const { return waiting_.size() - written_ >= kMost; }
  /// The reason for which something added was dropped, as an errno; 0: nothing was.
  int error() const { return error_; }

 private:
  static constexpr size_t kMost = size_t{1} << 20;

  int descriptor_;
  std::string waiting_;
  size_t written_ = 0;
  int error_ = 0;
};

/// Reads the stdout or stderr of one rank, and cuts it into lines, each of which goes to the sink
/// at once.
class RankOutput {
 public:
  /// A last line without an end gets one if `ends_last`.
  RankOutput(OwnedDescriptor descriptor, LineSink& sink, std::string prefix, bool ends_last)
      : descriptor_(std::move(descriptor)),
        sink_(sink),
        prefix_(std::move(prefix)),
        ends_last_(ends_last) {}

  /// Reads what is available, unless the sink is full.
  void read();
  void close();
  bool is_open() const { return descriptor_.get() >= 0; }
  /// The last read found nothing.
  bool is_quiet() const { return quiet_; }
  void look_again() { quiet_ = false; }
  /// The descriptor to poll; -1 while the sink is full.
  int descriptor() const { return sink_.is_full() ? -1 : descriptor_.get(); }

 private:
  static constexpr size_t kLongest = size_t{1} << 20;

  void add(std::string_view bytes);
  void write_line(std::string_view line, std::string_view end);

  OwnedDescriptor descriptor_;
  LineSink& sink_;
  std::string prefix_;
  bool ends_last_;
  std::string pending_;
  /// No line ends before that.
  size_t scanned_ = 0;
  bool quiet_ = false;
};

/// The stdin of rank 0: the launcher's own or, where that is a terminal, which only the launcher's
/// process group may read, a pipe that forwards the typed input.
class LaunchInput : NotCopied {
 public:
  LaunchInput();

  /// The descriptor for the child; close it once the child has started.
  int for_child() const;
  void close_for_child() { for_child_.close(); }

  /// The descriptor to poll before `pass_on`; -1: none.
  int descriptor() const;
  short events() const;
  /// Forwards the available input without blocking.
  void pass_on();
  /// Returns true when the launcher must check at times whether it may read.
  bool is_in_background() const;

 private:
  void close();

  /// None where the child gets the launcher's stdin.
  OwnedDescriptor for_child_, to_child_;
  std::string typed_;
};

/// The end of a process.
struct RankExit {
  /// Its exit code, or 128 + the signal that killed it.
  int code = 0;
  int signal = 0;
  bool dumped_core = false;

  /// "exited with code 3", "was killed by SIGSEGV (core dumped)".
  std::string in_words() const;
};

/// One process of a launch.
class LaunchRank {
 public:
  using Clock = std::chrono::steady_clock;

  LaunchRank(pid_t pid, RankOutput out, RankOutput err)
      : pid_(pid), out_(std::move(out)), err_(std::move(err)) {}

  RankOutput& out() { return out_; }
  RankOutput& err() { return err_; }
  bool has_exited() const { return exited_; }
  /// The process was stopped by a signal and has not been continued.
  bool is_stopped() const;
  /// The process has exited, its output is read, and no process of its group is left.
  bool is_gone() const { return pid_ < 0; }

  /// Sends a signal to the process and all that it started.
  void send(int signal) const;
  /// Returns true once, when the process has exited, and sets `how`.
  bool look(RankExit& how);
  /// Reads the rest of the output of an exited process, then ends the processes that it left
  /// running. Waits for the readers of its output unless `gives_up`, and briefly for processes that
  /// still hold it.
  void clear_away(bool gives_up);

 private:
  pid_t pid_;
  RankOutput out_, err_;
  bool exited_ = false;
  Clock::time_point exited_at_{};
};

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <csignal>
#include <string>
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

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "src/comm/launch/signals.h"

namespace weft {

struct LaunchPipe {
  int read;
  int write;
};

/// Descriptors above those of stdin, stdout and stderr, closed in programs that are started.
LaunchPipe new_pipe();
void make_nonblocking(int descriptor);

/// A process to be.
struct LaunchChild {
  std::vector<std::string> command;
  /// "NAME=value".
  std::vector<std::string> environment;
  /// What become its stdin (-1: nothing to read), stdout and stderr.
  int in, out, err;
};

/// The process's environment with those variables in it.
std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& variables);

/// Starts it as a process group of its own, which is killed when the calling thread ends.
/// std::runtime_error says why it cannot be started.
pid_t start_child(const LaunchChild& child, const LaunchSignals& signals);

}  // namespace weft

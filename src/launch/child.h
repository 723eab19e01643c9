// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "src/base/owned_descriptor.h"
#include "src/launch/signals.h"

namespace weft {

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

/// Returns the environment of this process with those variables set.
std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& variables);

/// Starts the process in a separate process group; it is killed when the calling thread ends.
/// Throws std::runtime_error with the reason when it cannot be started.
pid_t start_child(const LaunchChild& child, const LaunchSignals& signals);

}  // namespace weft

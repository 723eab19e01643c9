// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>

namespace weft {

/// Handles SIGTERM, with which launchers end a job's processes when one of them has exited, so that
/// this process can report what it was waiting for. Keeps a handler that the program has installed.
class Termination {
 public:
  Termination();
  ~Termination();
  Termination(const Termination&) = delete;
  Termination& operator=(const Termination&) = delete;

  /// True when the signal was received.
  bool is_asked() const;
  /// Ends the process as the signal would have done.
  [[noreturn]] void obey() const;

 private:
  bool installed_ = false;
};

}  // namespace weft

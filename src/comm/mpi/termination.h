// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>

namespace weft {

/// Takes SIGTERM, by which launchers end the processes of a job when one of them is gone, so that
/// this one can say what it waited for. Leaves a program's own handler alone.
class Termination {
 public:
  Termination();
  ~Termination();
  Termination(const Termination&) = delete;
  Termination& operator=(const Termination&) = delete;

  /// True when the signal has come.
  bool is_asked() const;
  /// Ends the process as the signal would have.
  [[noreturn]] void obey() const;

 private:
  bool installed_ = false;
};

}  // namespace weft

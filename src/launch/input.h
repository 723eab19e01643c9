// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace weft {

/// The stdin of rank 0: the launcher's own or, where that is a terminal, which only the launcher's
/// process group may read, a pipe that forwards the typed input.
class LaunchInput {
 public:
  LaunchInput();
  ~LaunchInput() { close(); }
  LaunchInput(const LaunchInput&) = delete;
  LaunchInput& operator=(const LaunchInput&) = delete;

  /// The descriptor for the child; close it once the child has started.
  int for_child() const { return for_child_; }
  void close_for_child();

  /// The descriptor to poll before `pass_on`; -1: none.
  int descriptor() const;
  short events() const;
  /// Forwards the available input without blocking.
  void pass_on();
  /// Returns true when the launcher must check at times whether it may read.
  bool is_in_background() const;

 private:
  void close();

  int for_child_;
  int to_child_ = -1;
  std::string typed_;
};

}  // namespace weft

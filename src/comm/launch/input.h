// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace weft {

/// The stdin of rank 0: that of the launcher, or where that is a terminal, which lets only the
/// launcher's process group read, a pipe that passes on what is typed.
class LaunchInput {
 public:
  LaunchInput();
  ~LaunchInput() { close(); }
  LaunchInput(const LaunchInput&) = delete;
  LaunchInput& operator=(const LaunchInput&) = delete;

  /// For the child; close it when that has started.
  int for_child() const { return for_child_; }
  void close_for_child();

  /// What to wait for before `pass_on`: -1, or a descriptor to read from or write to.
  int descriptor() const;
  short events() const;
  /// Passes on what is there; waits for nobody.
  void pass_on();
  /// True when it must look now and then whether it may read.
  bool is_in_background() const;

 private:
  void close();

  int for_child_;
  int to_child_ = -1;
  std::string typed_;
};

}  // namespace weft

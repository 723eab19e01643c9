// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "src/base/owned_descriptor.h"
#include "weft/export.h"

namespace weft {

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

}  // namespace weft

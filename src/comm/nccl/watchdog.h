// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace weft {

/// An object that must be checked while its owner is blocked on a GPU.
class Watched {
 public:
  virtual ~Watched() = default;
  /// Checks the object, on the watchdog's thread. Must not wait for the owner.
  virtual void look() noexcept = 0;
  /// The interval between checks.
  virtual std::chrono::milliseconds period() const = 0;
};

/// Starts checks of `watched`, by one thread per process that exists while it has objects to check.
void watch(Watched& watched);
/// Stops the checks; returns when none is running.
void unwatch(Watched& watched);

}  // namespace weft

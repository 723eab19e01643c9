// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace weft {

/// What somebody has to look at while its owner waits for a GPU.
class Watched {
 public:
  virtual ~Watched() = default;
  /// On the watchdog's thread. Does not wait for the owner.
  virtual void look() noexcept = 0;
  /// How often.
  virtual std::chrono::milliseconds period() const = 0;
};

/// From here on `watched` is looked at, by one thread a process, which is there while somebody is.
void watch(Watched& watched);
/// Returns when it is looked at no more.
void unwatch(Watched& watched);

}  // namespace weft

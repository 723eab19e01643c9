// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/communicator.h"

namespace weft {

/// What a Work is made of.
class Work::State {
 public:
  virtual ~State() = default;
  virtual void wait() = 0;
  virtual bool test() = 0;
  /// Ends it without an error to anyone: waits, or gives the collective up when an exception is
  /// under way.
  virtual void drop() noexcept = 0;
};

}  // namespace weft

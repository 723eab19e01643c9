// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/communicator.h"

namespace weft {

/// The implementation of a Work.
class Work::State {
 public:
  virtual ~State() = default;
  virtual void wait() = 0;
  virtual bool test() = 0;
  /// Ends the call without throwing: waits, or gives up the collective during stack unwinding.
  virtual void drop() noexcept = 0;
};

}  // namespace weft

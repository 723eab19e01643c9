// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "weft/device.h"
#include "weft/export.h"

namespace weft {

/// An ordered queue of work on a device. On the CPU there is one, and work is done when its call
/// returns.
struct Stream {
  Device device = cpu;
  void* handle = nullptr;
  bool operator==(const Stream&) const = default;
};

/// A point in a stream's work. Empty: nothing to wait for, as always on the CPU.
class WEFT_API Event {
 public:
  Event() = default;
  /// Marks what has been queued on `stream` so far.
  static Event record(const Stream& stream);
  /// Later work on `stream` starts after this point.
  void wait(const Stream& stream) const;
  /// Blocks the calling thread until this point is reached.
  void synchronize() const;
  bool empty() const { return handle_ == nullptr; }

 private:
  std::shared_ptr<void> handle_;
};

}  // namespace weft

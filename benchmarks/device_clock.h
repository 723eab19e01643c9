// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "benchmarks/report.h"
#include "weft/stream.h"

namespace weft::bench {

/// A moment of a device's stream, by the device's clock; on the emulated device by the host's.
class Moment {
 public:
  static Moment on(const Stream& stream);
  /// Waits until the stream has come to it.
  void wait() const;
  double seconds_after(const Moment& earlier) const;

 private:
  std::shared_ptr<void> handle_;
};

/// Seconds that the device takes for one call of f(), of several repetitions that last `seconds`
/// each: calls follow each other without a wait, so that what the host does hides behind the
/// device's work where that takes longer.
Spread device_seconds(Device device, double seconds, const std::function<void()>& f);

}  // namespace weft::bench

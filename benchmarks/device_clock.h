// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "benchmarks/report.h"
#include "weft/stream.h"

namespace weft::bench {

/// A point of a device's stream and its time by the device's clock (the host's when emulated).
class Moment {
 public:
  static Moment on(const Stream& stream);
  /// Waits until the stream has reached it.
  void wait() const;
  double seconds_after(const Moment& earlier) const;

 private:
  std::shared_ptr<void> handle_;
};

/// Seconds of device time per call of f(), from several repetitions of `seconds` each. Calls follow
/// each other without waits, so that host work is hidden behind the device's if that takes longer.
Spread device_seconds(Device device, double seconds, const std::function<void()>& f);

}  // namespace weft::bench

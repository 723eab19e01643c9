// SPDX-License-Identifier: Apache-2.0
#include "weft/stream.h"

#include "weft/error.h"

namespace weft {

/// Streams of other devices than the CPU need a backend that knows them.
static void check_host_stream(const char* what, const Stream& stream) {
  if (stream.device.kind == DeviceKind::cuda) {
    fail(what, ": there are no streams on ", stream.device, " in this build");
  }
}

Event Event::record(const Stream& stream) {
  check_host_stream("event", stream);
  return {};
}

void Event::wait(const Stream& stream) const { check_host_stream("event", stream); }

void Event::synchronize() const {}

}  // namespace weft

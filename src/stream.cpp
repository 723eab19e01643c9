// SPDX-License-Identifier: Apache-2.0
#include "weft/stream.h"

#include "src/cuda/runtime.h"

namespace weft {

Event Event::record(const Stream& stream) {
  Event event;
  if (stream.device.kind != DeviceKind::cuda) return event;
  event.handle_ = std::shared_ptr<void>(cuda::create_event(stream), cuda::destroy_event);
  return event;
}

void Event::wait(const Stream& stream) const {
  if (!handle_) return;
  if (stream.device.kind == DeviceKind::cuda) {
    cuda::wait_event(stream, handle_.get());
  } else {
    synchronize();
  }
}

void Event::synchronize() const {
  if (handle_) cuda::synchronize_event(handle_.get());
}

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include "src/comm/memory/memory_group.h"

#include "src/device/cuda/runtime.h"

namespace weft {

MemoryGroup::~MemoryGroup() {
  for (const SlotEvents& events : events_) {
    for (void* event : events.points) {
      if (event) cuda::destroy_event(event);
    }
    for (void* event : events.former) cuda::destroy_event(event);
  }
}

}  // namespace weft

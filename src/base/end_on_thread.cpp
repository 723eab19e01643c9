// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/end_on_thread.h"

namespace weft {

/// Head of the calling thread's list.
WEFT_STATIC_TLS static constinit thread_local DepartedObjects* departed_first = nullptr;

DepartedObjects::DepartedObjects() : next_(departed_first) { departed_first = this; }

void DepartedObjects::close_list() {
  DepartedObjects** place = &departed_first;
  while (*place && *place != this) place = &(*place)->next_;
  if (*place) *place = next_;
}

void end_departed() {
  for (DepartedObjects* objects = departed_first; objects; objects = objects->next_) {
    objects->reap();
  }
}

}  // namespace weft

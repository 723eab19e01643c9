// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "weft/export.h"

namespace weft::cuda::emulated {

// Memory of emulated devices: host memory that only device work may access. Any other access ends
// the process with a signal. Under the address sanitizer it is plain memory instead, checked for
// overruns.

void* allocate_device_memory(size_t bytes);
void free_device_memory(void* data) noexcept;

/// Lets all threads access the memory while an instance exists.
class DeviceMemoryOpen : NotCopied {
 public:
  DeviceMemoryOpen();
  ~DeviceMemoryOpen();
};

}  // namespace weft::cuda::emulated

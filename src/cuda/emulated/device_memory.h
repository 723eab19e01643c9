// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace weft::cuda::emulated {

// Memory of devices that are not there: host memory which only their work may touch. Elsewhere a
// touch ends the process. Under the address sanitizer it is plain memory instead, whose ends the
// sanitizer watches.

void* allocate_device_memory(size_t bytes);
void free_device_memory(void* data) noexcept;

/// Lets the calling thread's work touch it while one of these lives.
class DeviceMemoryOpen {
 public:
  DeviceMemoryOpen();
  ~DeviceMemoryOpen();
  DeviceMemoryOpen(const DeviceMemoryOpen&) = delete;
  DeviceMemoryOpen& operator=(const DeviceMemoryOpen&) = delete;
};

}  // namespace weft::cuda::emulated

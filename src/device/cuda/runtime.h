// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "weft/block.h"
#include "weft/stream.h"

namespace weft::cuda {

// weft's interface to the CUDA runtime: memory, streams, events and copies. Implemented by
// runtime_driver.cpp (a GPU), emulated/runtime.cpp (tests without one) or runtime_absent.cpp (no
// CUDA, hence no device). A failed call throws a std::runtime_error with its name.

/// The number of devices that this process can use.
int device_count();
/// The reason why there are none: "this build of weft has no CUDA".
std::string why_no_device();
/// The vendor's name of the device.
std::string device_name(int device);
/// Makes `device` the calling thread's current device.
void use_device(int device);
/// Lets kernels of `device` read the memory of `other`; false when that is impossible.
bool open_memory(int device, int other);

/// Bytes of a device's memory.
struct DeviceMemory {
  size_t free;
  size_t total;
};
DeviceMemory memory_of(int device);

/// Returns memory aligned to 256 bytes; nullptr when there is not enough.
void* allocate_on_device(int device, size_t bytes);
void free_on_device(int device, void* data) noexcept;
/// Allocates pinned host memory, which asynchronous copies require.
void* allocate_pinned(size_t bytes);
void free_pinned(void* data) noexcept;

void* create_stream(int device);
/// Waits for its work first.
void destroy_stream(int device, void* stream) noexcept;
void synchronize(const Stream& stream);

/// Records a point in the work queued on `stream` so far.
void* create_event(const Stream& stream);
/// Records the event again; earlier waits still refer to the previous point.
void record_event(void* event, const Stream& stream);
void destroy_event(void* event) noexcept;
/// Makes later work of `stream` start after the event.
void wait_event(const Stream& stream, void* event);
void synchronize_event(void* event);
/// Returns true when the event has been reached.
bool event_done(void* event);

/// Queue a copy on `stream`. Host memory must be pinned and is accessed when the stream reaches the
/// copy (staging.h handles other memory).
void copy_to_device(void* to, const void* from, size_t bytes, const Stream& stream);
void copy_to_host(void* to, const void* from, size_t bytes, const Stream& stream);
void copy_on_devices(void* to, const void* from, size_t bytes, const Stream& stream);

}  // namespace weft::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "weft/block.h"
#include "weft/stream.h"

namespace weft::cuda {

// What weft asks of CUDA's runtime: memory, streams, events and copies. One of three files gives
// it: runtime_driver.cpp (a GPU), emulated/runtime.cpp (tests without one), runtime_absent.cpp
// (builds without CUDA, which know no device). A failed call is a std::runtime_error naming it.

/// Devices that this process can use.
int device_count();
/// Why there are none, in words: "this build of weft has no CUDA".
std::string why_no_device();
/// What its maker calls it.
std::string device_name(int device);
/// The calling thread's calls are for `device` from here on.
void use_device(int device);
/// Lets kernels of `device` read the memory of `other`; false when they cannot.
bool open_memory(int device, int other);

/// Bytes of a device's memory.
struct DeviceMemory {
  size_t free;
  size_t total;
};
DeviceMemory memory_of(int device);

/// nullptr when there is not enough; aligned to 256 bytes.
void* allocate_on_device(int device, size_t bytes);
void free_on_device(int device, void* data) noexcept;
/// Host memory that copies of streams read and write while the host does other things.
void* allocate_pinned(size_t bytes);
void free_pinned(void* data) noexcept;

void* create_stream(int device);
/// Waits for its work.
void destroy_stream(int device, void* stream) noexcept;
void synchronize(const Stream& stream);

/// A point in what was queued on `stream` so far.
void* create_event(const Stream& stream);
/// The same point anew; who waits for the one before still does.
void record_event(void* event, const Stream& stream);
void destroy_event(void* event) noexcept;
/// Later work of `stream` starts after the event.
void wait_event(const Stream& stream, void* event);
void synchronize_event(void* event);
/// True when the event is reached.
bool event_done(void* event);

/// Queued on `stream`. The host's memory is pinned, and read or written when the stream comes to it
/// (staging.h serves other memory).
void copy_to_device(void* to, const void* from, size_t bytes, const Stream& stream);
void copy_to_host(void* to, const void* from, size_t bytes, const Stream& stream);
void copy_on_devices(void* to, const void* from, size_t bytes, const Stream& stream);

}  // namespace weft::cuda

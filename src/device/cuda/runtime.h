// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "weft/block.h"
#include "weft/stream.h"

namespace weft::cuda {

/// True when this build has CUDA kernels and the block is on a GPU.
#ifdef WEFT_WITH_CUDA
inline bool on_cuda(const MemoryBlock& block) { return block.device.kind == DeviceKind::cuda; }
inline constexpr bool kWithCuda = true;
#else
inline constexpr bool on_cuda(const MemoryBlock&) { return false; }
inline constexpr bool kWithCuda = false;
#endif

/// Returns the role of the calling thread's stream; kStreamRoles for others, such as a graph's.
inline int role_of(const Stream& stream) {
  for (int role = 0; role < kStreamRoles; ++role) {
    if (stream_for(stream.device, static_cast<StreamRole>(role)).handle == stream.handle) {
      return role;
    }
  }
  return kStreamRoles;
}

/// Returns whether it is the calling thread's stream of StreamRole::side, without creating one.
bool is_side(const Stream& stream);

// weft's interface to the CUDA runtime: memory, streams, events, copies, times and graph capture.
// Implemented by runtime_driver.cpp (a GPU) or emulated/runtime.cpp (tests without one, and builds
// without CUDA, which have no device). A failed call throws a std::runtime_error with its name.

/// The number of devices that this process can use.
int device_count();
/// The reason why there are none: "this build of weft has no CUDA".
std::string why_no_device();
/// The vendor's name of the device.
std::string device_name(int device);
/// The most bytes of shared memory that a thread block of the device can have.
size_t block_memory(int device);
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
StreamEvent* create_event(const Stream& stream);
/// Records the event again; earlier waits still refer to the previous point.
void record_event(StreamEvent* event, const Stream& stream);
void destroy_event(StreamEvent* event) noexcept;
/// Makes later work of `stream` start after the event.
void wait_event(const Stream& stream, const StreamEvent* event);
void synchronize_event(const StreamEvent* event);
/// Returns true when the event has been reached.
bool event_done(const StreamEvent* event);

/// Queue a copy on `stream`. Host memory must be pinned and is accessed when the stream reaches the
/// copy (send_to_device handles other memory).
void copy_to_device(void* to, const void* from, size_t bytes, const Stream& stream);
void copy_to_host(void* to, const void* from, size_t bytes, const Stream& stream);
void copy_on_devices(void* to, const void* from, size_t bytes, const Stream& stream);

// Copies between a GPU and any host memory through pinned buffers that the calling thread keeps:
// four of at most 4 MiB, so that the host copies one while the GPU copies another.

/// Queues a copy on `stream`; `from` has been read on return, whatever the GPU is doing.
void send_to_device(void* to, const void* from, size_t bytes, const Stream& stream);
/// Sets a function called after each read of the calling thread; it throws when the data read is
/// invalid, as after an aborted collective.
void check_reads_by(void (*check)());
/// The bytes have arrived on return.
void read_from_device(void* to, const void* from, size_t bytes, const Stream& stream);

// Measures when a GPU reaches points of its streams.

/// A point of a stream whose time is measured.
struct StreamTime;
/// Marks a point in the work queued on `stream` so far; not during a capture.
std::shared_ptr<StreamTime> mark_time(const Stream& stream);
/// Waits until both points are reached; returns the nanoseconds between them, accurate to half a
/// microsecond or a millionth of the interval, whichever is larger.
int64_t nanoseconds_between(const StreamTime& earlier, const StreamTime& later);

/// Queues work that occupies a GPU for `microseconds` and does nothing, for tests of stream order.
/// On the emulated device it delays the stream behind all others until another stream is delayed,
/// whatever `microseconds` is.
void delay(const Stream& stream, int microseconds);

// CUDA graph capture: work is recorded instead of run, and replayed later any number of times. Each
// thread has at most one capture at a time. A stream takes part once it waits for an event of one
// that does; work on another stream runs at once and is not recorded. Events recorded before the
// capture, or on a stream that takes no part, count as reached (replaying a graph waits for all
// streams), and events of a capture have no effect outside it.

/// Starts recording the work queued on `stream` and on streams that wait for it.
void begin_capture(const Stream& stream);
/// Ends the capture and returns its graph. `stream` must have waited for all captured streams.
void* end_capture(const Stream& stream);
/// Ends the capture and discards it.
void drop_capture(const Stream& stream) noexcept;
/// Returns the number of the calling thread's capture; 0 when there is none.
uint64_t capture_number();
/// During a capture the host cannot read the device's memory.
inline bool is_capturing() { return capture_number() != 0; }

/// Queues the graph on `stream`.
void play(void* graph, const Stream& stream);
void destroy_graph(void* graph) noexcept;

}  // namespace weft::cuda

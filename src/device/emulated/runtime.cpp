// SPDX-License-Identifier: Apache-2.0
#include "src/device/cuda/runtime.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "src/base/ticks.h"
#include "src/device/emulated/device.h"
#include "weft/error.h"

namespace weft {

struct StreamEvent {
  cuda::emulated::Mark mark;
};

}  // namespace weft

namespace weft::cuda {

using emulated::DeviceMemoryOpen;
using emulated::Mark;
using emulated::Queue;

static constexpr int kEmulatedDevices = 2;

int device_count() {
  static const bool hidden = [] {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    return visible && *visible == '\0';
  }();
  return hidden || !kWithCuda ? 0 : kEmulatedDevices;
}

std::string why_no_device() {
  return kWithCuda ? "CUDA_VISIBLE_DEVICES is empty" : "this build of weft has no CUDA";
}

std::string device_name(int) { return "emulated GPU"; }
size_t block_memory(int) { return size_t{227} << 10; }
void use_device(int) {}
bool open_memory(int, int) { return true; }

DeviceMemory memory_of(int) { return {size_t{16} << 30, size_t{16} << 30}; }

void* allocate_on_device(int, size_t bytes) { return emulated::allocate_device_memory(bytes); }
void free_on_device(int, void* data) noexcept {
  emulated::run_all();
  emulated::free_device_memory(data);
}
/// Pinned memory, by address.
struct Pinned {
  mutable std::mutex mutex;
  std::map<const std::byte*, size_t> sizes;
};

static Pinned& all_pinned() {
  static auto* const pinned = new Pinned;  // outlives the memory of threads that end late
  return *pinned;
}

void* allocate_pinned(size_t bytes) {
  auto* const data = static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
  if (!data) fail_call("emulated allocate_pinned", "the host has no ", bytes, " bytes left");
  const std::lock_guard lock(all_pinned().mutex);
  all_pinned().sizes[data] = bytes;
  return data;
}

void free_pinned(void* data) noexcept {
  emulated::run_all();
  const std::lock_guard lock(all_pinned().mutex);
  all_pinned().sizes.erase(static_cast<std::byte*>(data));
  std::free(data);
}

// A stream's handle points to its queue.
using QueueHandle = std::shared_ptr<Queue>;

void* create_stream(int) { return new QueueHandle(emulated::make_queue()); }

static QueueHandle& queue_of(const Stream& stream) {
  return *static_cast<QueueHandle*>(stream.handle);
}

void destroy_stream(int, void* stream) noexcept {
  auto* queue = static_cast<QueueHandle*>(stream);
  emulated::run_all(*queue);
  delete queue;
}

void synchronize(const Stream& stream) {
  if (is_capturing()) fail_call("emulated synchronize", "a capture is under way");
  emulated::run_all(queue_of(stream));
}

StreamEvent* create_event(const Stream& stream) {
  return new StreamEvent{emulated::mark_of(queue_of(stream))};
}
void record_event(StreamEvent* event, const Stream& stream) {
  event->mark = emulated::mark_of(queue_of(stream));
}
void destroy_event(StreamEvent* event) noexcept { delete event; }
void wait_event(const Stream& stream, const StreamEvent* event) {
  emulated::enqueue_wait(queue_of(stream), event->mark);
}
void synchronize_event(const StreamEvent* event) { emulated::run_until(event->mark); }
bool event_done(const StreamEvent* event) { return emulated::is_reached(event->mark); }

struct StreamTime {
  Mark reached;
  int64_t nanoseconds = 0;
};

std::shared_ptr<StreamTime> mark_time(const Stream& stream) {
  auto time = std::make_shared<StreamTime>();
  emulated::enqueue(queue_of(stream), [time] { time->nanoseconds = steady_nanoseconds(); });
  time->reached = emulated::mark_of(queue_of(stream));
  return time;
}

int64_t nanoseconds_between(const StreamTime& earlier, const StreamTime& later) {
  emulated::run_until(earlier.reached);
  emulated::run_until(later.reached);
  return later.nanoseconds - earlier.nanoseconds;
}

/// Fails unless the host memory is pinned, as asynchronous copies require.
static void check_pinned(const void* data) {
  const Pinned& pinned = all_pinned();
  const std::lock_guard lock(pinned.mutex);
  const auto* const address = static_cast<const std::byte*>(data);
  auto after = pinned.sizes.upper_bound(address);
  if (after != pinned.sizes.begin() && address < std::prev(after)->first + std::prev(after)->second)
    return;
  fail_call("emulated copy", "the host's memory is not pinned");
}

using Recorded = std::vector<emulated::Step>;

void begin_capture(const Stream& stream) { emulated::begin_recording(queue_of(stream)); }
void* end_capture(const Stream&) { return new Recorded(emulated::end_recording()); }
void drop_capture(const Stream&) noexcept { emulated::end_recording(); }
uint64_t capture_number() { return emulated::recording_number(); }
void play(void* graph, const Stream& stream) {
  for (const emulated::Step& step : *static_cast<Recorded*>(graph)) step(queue_of(stream));
}
void destroy_graph(void* graph) noexcept { delete static_cast<Recorded*>(graph); }

void copy_to_device(void* to, const void* from, size_t bytes, const Stream& stream) {
  if (bytes > 0) check_pinned(from);
  copy_on_devices(to, from, bytes, stream);
}

void copy_to_host(void* to, const void* from, size_t bytes, const Stream& stream) {
  if (bytes > 0) check_pinned(to);
  copy_on_devices(to, from, bytes, stream);
}

void delay(const Stream& stream, int) { emulated::hold(queue_of(stream)); }

void copy_on_devices(void* to, const void* from, size_t bytes, const Stream& stream) {
  emulated::enqueue(queue_of(stream), [to, from, bytes] {
    const DeviceMemoryOpen open;
    if (bytes > 0) std::memmove(to, from, bytes);
  });
}

namespace emulated {

void enqueue_kernel(const Stream& stream, std::function<void()> kernel) {
  enqueue(queue_of(stream), [kernel = std::move(kernel)] {
    const DeviceMemoryOpen open;
    kernel();
  });
}

}  // namespace emulated
}  // namespace weft::cuda

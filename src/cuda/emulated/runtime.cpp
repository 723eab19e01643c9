// SPDX-License-Identifier: Apache-2.0
#include "src/cuda/runtime.h"

#include <cstdlib>
#include <cstring>
#include <vector>

#include "src/cuda/emulated/device_memory.h"
#include "src/cuda/emulated/launch.h"
#include "src/cuda/emulated/queue.h"

namespace weft::cuda {

using emulated::DeviceMemoryOpen;
using emulated::Mark;
using emulated::Queue;

static constexpr int kEmulatedDevices = 2;

int device_count() {
  static const bool hidden = std::getenv("WEFT_EMULATED_NONE") != nullptr;
  return hidden ? 0 : kEmulatedDevices;
}

std::string why_no_device() { return "WEFT_EMULATED_NONE hides the emulated devices"; }

std::string device_name(int) { return "emulated GPU"; }
void use_device(int) {}
bool can_read(int, int) { return true; }

DeviceMemory memory_of(int) { return {size_t{16} << 30, size_t{16} << 30}; }

void* allocate_on_device(int, size_t bytes) { return emulated::allocate_device_memory(bytes); }
void free_on_device(int, void* data) noexcept {
  emulated::run_all();
  emulated::free_device_memory(data);
}
void* allocate_pinned(size_t bytes) { return std::malloc(bytes); }
void free_pinned(void* data) noexcept { std::free(data); }

// A stream's handle leads to its queue.
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

void synchronize(const Stream& stream) { emulated::run_all(queue_of(stream)); }

void* create_event(const Stream& stream) { return new Mark(emulated::mark_of(queue_of(stream))); }
void record_event(void* event, const Stream& stream) {
  *static_cast<Mark*>(event) = emulated::mark_of(queue_of(stream));
}
void destroy_event(void* event) noexcept { delete static_cast<Mark*>(event); }
void wait_event(const Stream& stream, void* event) {
  const Mark mark = *static_cast<Mark*>(event);
  emulated::enqueue(queue_of(stream), [mark] { emulated::run_until(mark); });
}
void synchronize_event(void* event) { emulated::run_until(*static_cast<Mark*>(event)); }
bool event_done(void* event) { return emulated::is_reached(*static_cast<Mark*>(event)); }

void copy_to_device(void* to, const void* from, size_t bytes, const Stream& stream) {
  const auto* first = static_cast<const std::byte*>(from);
  std::vector<std::byte> staged(first, first + bytes);
  emulated::enqueue(queue_of(stream), [to, staged = std::move(staged)] {
    const DeviceMemoryOpen open;
    if (!staged.empty()) std::memcpy(to, staged.data(), staged.size());
  });
}

void copy_to_host(void* to, const void* from, size_t bytes, const Stream& stream) {
  copy_on_devices(to, from, bytes, stream);
  synchronize(stream);
}

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

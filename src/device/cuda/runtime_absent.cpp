// SPDX-License-Identifier: Apache-2.0
#include "src/device/cuda/runtime.h"
#include "weft/error.h"

namespace weft::cuda {

int device_count() { return 0; }
std::string why_no_device() { return "this build of weft has no CUDA"; }

// Never called: without devices there is no device memory.

[[noreturn]] static void refuse() { throw_runtime_error(why_no_device()); }

std::string device_name(int) { refuse(); }
size_t block_memory(int) { refuse(); }
void use_device(int) { refuse(); }
bool open_memory(int, int) { refuse(); }
DeviceMemory memory_of(int) { refuse(); }
void* allocate_on_device(int, size_t) { refuse(); }
void free_on_device(int, void*) noexcept {}
void* allocate_pinned(size_t) { refuse(); }
void free_pinned(void*) noexcept {}
void* create_stream(int) { refuse(); }
void destroy_stream(int, void*) noexcept {}
void synchronize(const Stream&) { refuse(); }
void* create_event(const Stream&) { refuse(); }
void record_event(void*, const Stream&) { refuse(); }
void destroy_event(void*) noexcept {}
void wait_event(const Stream&, void*) { refuse(); }
void synchronize_event(void*) { refuse(); }
bool event_done(void*) { refuse(); }
void copy_to_device(void*, const void*, size_t, const Stream&) { refuse(); }
void copy_to_host(void*, const void*, size_t, const Stream&) { refuse(); }
void copy_on_devices(void*, const void*, size_t, const Stream&) { refuse(); }

void* mark_time(const Stream&) { refuse(); }
void destroy_time(void*) noexcept {}
int64_t nanoseconds_between(void*, void*) { refuse(); }

void delay(const Stream&, int) { refuse(); }

void begin_capture(const Stream&) { refuse(); }
void* end_capture(const Stream&) { refuse(); }
void drop_capture(const Stream&) noexcept {}
uint64_t capture_number() { return 0; }
void play(void*, const Stream&) { refuse(); }
void destroy_graph(void*) noexcept {}

}  // namespace weft::cuda

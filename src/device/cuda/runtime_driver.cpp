// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "src/device/cuda/checked.h"
#include "src/device/cuda/runtime.h"
#include "weft/error.h"

namespace weft {

/// An event, and the number of the capture that recorded it (0 for none).
struct StreamEvent : NotCopied {
  ~StreamEvent() { cuda::ignore(cudaEventDestroy(event)); }

  cudaEvent_t event = nullptr;
  uint64_t capture = 0;
};

}  // namespace weft

namespace weft::cuda {

namespace {

/// The driver's result of the first query for devices.
struct Devices {
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
};

const Devices& devices() {
  static const Devices found;
  return found;
}

}  // namespace

void check(const char* call, cudaError_t error) {
  if (error == cudaSuccess) [[likely]]
    return;
  fail_call(call, cudaGetErrorName(error), " (", static_cast<int>(error),
            "): ", cudaGetErrorString(error));
}

int device_count() { return devices().error == cudaSuccess ? devices().count : 0; }

std::string why_no_device() {
  const cudaError_t error = devices().error;
  if (error == cudaSuccess) return "the CUDA driver sees no device";
  return concat("the CUDA runtime sees no device: ", cudaGetErrorString(error), " (",
                static_cast<int>(error), ")");
}

std::string device_name(int device) {
  cudaDeviceProp properties{};
  check("cudaGetDeviceProperties", cudaGetDeviceProperties(&properties, device));
  return properties.name;
}

size_t block_memory(int device) {
  int bytes = 0;
  check("cudaDeviceGetAttribute",
        cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return static_cast<size_t>(bytes);
}

void use_device(int device) {
  int now = 0;
  check("cudaGetDevice", cudaGetDevice(&now));
  if (now != device) check("cudaSetDevice", cudaSetDevice(device));
}

DeviceMemory memory_of(int device) {
  use_device(device);
  DeviceMemory memory{};
  check("cudaMemGetInfo", cudaMemGetInfo(&memory.free, &memory.total));
  return memory;
}

void* allocate_on_device(int device, size_t bytes) {
  use_device(device);
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check("cudaMalloc", error);
  return data;
}

// The driver may have shut down before the last tensor is freed; then nothing is left to free.
void free_on_device(int, void* data) noexcept { ignore(cudaFree(data)); }

void* allocate_pinned(size_t bytes) {
  void* data = nullptr;
  check("cudaHostAlloc", cudaHostAlloc(&data, bytes, cudaHostAllocPortable));
  return data;
}

void free_pinned(void* data) noexcept { ignore(cudaFreeHost(data)); }

bool open_memory(int device, int other) {
  if (device == other) return true;
  static std::mutex mutex;
  static std::map<std::pair<int, int>, bool> asked;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = asked.try_emplace({device, other}, false);
  if (!is_new) return found->second;
  int can = 0;
  check("cudaDeviceCanAccessPeer", cudaDeviceCanAccessPeer(&can, device, other));
  if (can == 0) return false;
  use_device(device);
  const cudaError_t error = cudaDeviceEnablePeerAccess(other, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();
  } else {
    check("cudaDeviceEnablePeerAccess", error);
  }
  return found->second = true;
}

void* create_stream(int device) {
  use_device(device);
  cudaStream_t stream = nullptr;
  check("cudaStreamCreate", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

void destroy_stream(int, void* stream) noexcept {
  ignore(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
  ignore(cudaStreamDestroy(static_cast<cudaStream_t>(stream)));
}

void synchronize(const Stream& stream) {
  check("cudaStreamSynchronize", cudaStreamSynchronize(handle_of(stream)));
}

static void copy_bytes(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                       const Stream& stream) {
  if (bytes == 0) return;
  use_device(stream.device.index);
  check("cudaMemcpyAsync", cudaMemcpyAsync(to, from, bytes, kind, handle_of(stream)));
}

void copy_to_device(void* to, const void* from, size_t bytes, const Stream& stream) {
  copy_bytes(to, from, bytes, cudaMemcpyHostToDevice, stream);
}

void copy_to_host(void* to, const void* from, size_t bytes, const Stream& stream) {
  copy_bytes(to, from, bytes, cudaMemcpyDeviceToHost, stream);
}

void copy_on_devices(void* to, const void* from, size_t bytes, const Stream& stream) {
  copy_bytes(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

namespace {

/// The number of the calling thread's current capture.
thread_local uint64_t capturing = 0;

/// Returns the thread's capture if the stream takes part in it, else 0.
uint64_t capture_of(const Stream& stream) {
  if (capturing == 0) return 0;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check("cudaStreamIsCapturing", cudaStreamIsCapturing(handle_of(stream), &status));
  return status == cudaStreamCaptureStatusActive ? capturing : 0;
}

}  // namespace

StreamEvent* create_event(const Stream& stream) {
  use_device(stream.device.index);
  auto made = std::make_unique<StreamEvent>();
  check("cudaEventCreate", cudaEventCreateWithFlags(&made->event, cudaEventDisableTiming));
  record_event(made.get(), stream);
  return made.release();
}

void record_event(StreamEvent* event, const Stream& stream) {
  event->capture = capture_of(stream);
  check("cudaEventRecord", cudaEventRecord(event->event, handle_of(stream)));
}

void destroy_event(StreamEvent* event) noexcept { delete event; }

void wait_event(const Stream& stream, const StreamEvent* event) {
  const uint64_t capture = event->capture;
  const bool is_of_other_capture = capture != 0 && capture != capturing;
  const bool is_from_outside = capture == 0 && capture_of(stream) != 0;
  if (is_of_other_capture || is_from_outside) return;
  check("cudaStreamWaitEvent", cudaStreamWaitEvent(handle_of(stream), event->event, 0));
}

void synchronize_event(const StreamEvent* event) {
  if (event->capture != 0) return;
  check("cudaEventSynchronize", cudaEventSynchronize(event->event));
}

bool event_done(const StreamEvent* event) {
  if (event->capture != 0) return true;
  const cudaError_t error = cudaEventQuery(event->event);
  if (error == cudaErrorNotReady) {
    ignore(error);
    return false;
  }
  check("cudaEventQuery", error);
  return true;
}

struct StreamTime : NotCopied {
  StreamTime() { check("cudaEventCreate", cudaEventCreate(&event)); }
  ~StreamTime() { ignore(cudaEventDestroy(event)); }

  cudaEvent_t event = nullptr;
};

std::shared_ptr<StreamTime> mark_time(const Stream& stream) {
  use_device(stream.device.index);
  auto time = std::make_shared<StreamTime>();
  check("cudaEventRecord", cudaEventRecord(time->event, handle_of(stream)));
  return time;
}

int64_t nanoseconds_between(const StreamTime& earlier, const StreamTime& later) {
  check("cudaEventSynchronize", cudaEventSynchronize(earlier.event));
  check("cudaEventSynchronize", cudaEventSynchronize(later.event));
  float milliseconds = 0;
  check("cudaEventElapsedTime", cudaEventElapsedTime(&milliseconds, earlier.event, later.event));
  return static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
}

void begin_capture(const Stream& stream) {
  static std::atomic<uint64_t> captures{0};
  check("cudaStreamBeginCapture",
        cudaStreamBeginCapture(handle_of(stream), cudaStreamCaptureModeRelaxed));
  capturing = ++captures;
}

void* end_capture(const Stream& stream) {
  capturing = 0;
  cudaGraph_t recorded = nullptr;
  check("cudaStreamEndCapture", cudaStreamEndCapture(handle_of(stream), &recorded));
  cudaGraphExec_t graph = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&graph, recorded, 0);
  cudaGraphDestroy(recorded);
  check("cudaGraphInstantiate", error);
  return graph;
}

void drop_capture(const Stream& stream) noexcept {
  capturing = 0;
  cudaGraph_t recorded = nullptr;
  cudaStreamEndCapture(handle_of(stream), &recorded);
  if (recorded) cudaGraphDestroy(recorded);
  cudaGetLastError();
}

uint64_t capture_number() { return capturing; }

void play(void* graph, const Stream& stream) {
  check("cudaGraphLaunch", cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), handle_of(stream)));
}

void destroy_graph(void* graph) noexcept {
  ignore(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)));
}

}  // namespace weft::cuda

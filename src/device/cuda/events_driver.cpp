// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>

#include "src/device/cuda/capture.h"
#include "src/device/cuda/checked.h"
#include "src/device/cuda/runtime.h"
#include "src/device/cuda/timing.h"

namespace weft::cuda {

namespace {

/// An event, and the number of the capture that recorded it (0 for none).
struct EventOfCapture {
  cudaEvent_t event = nullptr;
  uint64_t capture = 0;
};

/// The number of the calling thread's current capture.
thread_local uint64_t capturing = 0;

EventOfCapture& event_of(void* handle) { return *static_cast<EventOfCapture*>(handle); }

/// Returns the thread's capture if the stream takes part in it, else 0.
uint64_t capture_of(const Stream& stream) {
  if (capturing == 0) return 0;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check("cudaStreamIsCapturing", cudaStreamIsCapturing(handle_of(stream), &status));
  return status == cudaStreamCaptureStatusActive ? capturing : 0;
}

}  // namespace

void* create_event(const Stream& stream) {
  use_device(stream.device.index);
  cudaEvent_t event = nullptr;
  check("cudaEventCreate", cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  auto* const made = new EventOfCapture{event, 0};
  record_event(made, stream);
  return made;
}

void record_event(void* event, const Stream& stream) {
  event_of(event).capture = capture_of(stream);
  check("cudaEventRecord", cudaEventRecord(event_of(event).event, handle_of(stream)));
}

void destroy_event(void* event) noexcept {
  ignore(cudaEventDestroy(event_of(event).event));
  delete &event_of(event);
}

void wait_event(const Stream& stream, void* event) {
  const uint64_t capture = event_of(event).capture;
  const bool is_of_other_capture = capture != 0 && capture != capturing;
  const bool is_from_outside = capture == 0 && capture_of(stream) != 0;
  if (is_of_other_capture || is_from_outside) return;
  check("cudaStreamWaitEvent", cudaStreamWaitEvent(handle_of(stream), event_of(event).event, 0));
}

void synchronize_event(void* event) {
  if (event_of(event).capture != 0) return;
  check("cudaEventSynchronize", cudaEventSynchronize(event_of(event).event));
}

bool event_done(void* event) {
  if (event_of(event).capture != 0) return true;
  const cudaError_t error = cudaEventQuery(event_of(event).event);
  if (error == cudaErrorNotReady) {
    ignore(error);
    return false;
  }
  check("cudaEventQuery", error);
  return true;
}

void* mark_time(const Stream& stream) {
  use_device(stream.device.index);
  cudaEvent_t time = nullptr;
  check("cudaEventCreate", cudaEventCreate(&time));
  check("cudaEventRecord", cudaEventRecord(time, handle_of(stream)));
  return time;
}

void destroy_time(void* time) noexcept { ignore(cudaEventDestroy(static_cast<cudaEvent_t>(time))); }

int64_t nanoseconds_between(void* earlier, void* later) {
  const auto from = static_cast<cudaEvent_t>(earlier), to = static_cast<cudaEvent_t>(later);
  check("cudaEventSynchronize", cudaEventSynchronize(from));
  check("cudaEventSynchronize", cudaEventSynchronize(to));
  float milliseconds = 0;
  check("cudaEventElapsedTime", cudaEventElapsedTime(&milliseconds, from, to));
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

// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/cuda.h"

#include <algorithm>

#include "weft/error.h"

#ifndef WEFT_CUDA_EMULATED
#include <cuda_runtime_api.h>
#endif

namespace weft::bench {

#ifdef WEFT_CUDA_EMULATED

Moment Moment::on(const Stream& stream) {
  Event::record(stream).synchronize();
  Moment moment;
  moment.handle_ = std::make_shared<Clock::time_point>(Clock::now());
  return moment;
}

void Moment::wait() const {}

double Moment::seconds_after(const Moment& earlier) const {
  const auto time = [](const Moment& moment) {
    return *static_cast<const Clock::time_point*>(moment.handle_.get());
  };
  return std::chrono::duration<double>(time(*this) - time(earlier)).count();
}

#else

static void check(const char* call, cudaError_t error) {
  if (error != cudaSuccess) fail_call(call, cudaGetErrorString(error));
}

static cudaEvent_t event_in(const std::shared_ptr<void>& handle) {
  return static_cast<cudaEvent_t>(handle.get());
}

Moment Moment::on(const Stream& stream) {
  cudaEvent_t event = nullptr;
  check("cudaEventCreate", cudaEventCreate(&event));
  Moment moment;
  moment.handle_ = {event, [](void* made) { cudaEventDestroy(static_cast<cudaEvent_t>(made)); }};
  check("cudaEventRecord", cudaEventRecord(event, static_cast<cudaStream_t>(stream.handle)));
  return moment;
}

void Moment::wait() const {
  check("cudaEventSynchronize", cudaEventSynchronize(event_in(handle_)));
}

double Moment::seconds_after(const Moment& earlier) const {
  float milliseconds = 0;
  wait();
  check("cudaEventElapsedTime",
        cudaEventElapsedTime(&milliseconds, event_in(earlier.handle_), event_in(handle_)));
  return milliseconds * 1e-3;
}

#endif

static double seconds_of_calls(const Stream& stream, int calls, const std::function<void()>& f) {
  const Moment start = Moment::on(stream);
  for (int i = 0; i < calls; ++i) f();
  return Moment::on(stream).seconds_after(start);
}

Spread device_seconds(Device device, double seconds, const std::function<void()>& f) {
  constexpr int kRepetitions = 9, kWarmup = 3, kMostCalls = 1000;
  const Stream stream = current_stream(device);
  seconds_of_calls(stream, kWarmup, f);
  const double once = seconds_of_calls(stream, 1, f);
  const int calls =
      static_cast<int>(std::clamp(seconds / std::max(once, 1e-9), 1.0, 1.0 * kMostCalls));
  std::vector<double> times;
  for (int i = 0; i < kRepetitions; ++i)
    times.push_back(seconds_of_calls(stream, calls, f) / calls);
  return spread_of(std::move(times));
}

}  // namespace weft::bench

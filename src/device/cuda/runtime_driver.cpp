// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <utility>

#include "src/device/cuda/checked.h"
#include "src/device/cuda/runtime.h"
#include "weft/error.h"

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

}  // namespace weft::cuda

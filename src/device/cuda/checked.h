// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>
#include <library_types.h>

#include <unordered_map>

#include "weft/dtype.h"
#include "weft/error.h"
#include "weft/export.h"
#include "weft/stream.h"

namespace weft::cuda {

/// Throws std::runtime_error with the name of the call when it failed.
void check(const char* call, cudaError_t error);

/// Discards an error, so that the check after the next kernel launch does not see it either.
inline void ignore(cudaError_t error) noexcept {
  if (error != cudaSuccess) cudaGetLastError();
}

/// The stream's CUDA handle.
inline cudaStream_t handle_of(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.handle);
}

/// Throws std::runtime_error with the name of the call and of the status when it is not 0, which
/// means success in NVIDIA's libraries. `name_of` is the library's function for that name.
template <class Status, class NameOf>
void check_status(const char* call, Status status, const NameOf& name_of) {
  if (static_cast<int>(status) == 0) [[likely]]
    return;
  fail_call(call, name_of(status), " (", static_cast<int>(status), ")");
}

/// The type of elements as the libraries name it; f64 for all that is not listed.
inline cudaDataType_t type_in_library(DType dtype) {
  switch (dtype) {
    case DType::f32: return CUDA_R_32F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    case DType::f8_e4m3: return CUDA_R_8F_E4M3;
    case DType::f8_e5m2: return CUDA_R_8F_E5M2;
    default: return CUDA_R_64F;
  }
}

/// Handles of a library, one per device, for one thread. `create` and `destroy` are functions of
/// the library; `check(call, status)` throws.
template <class Handle, const auto& create, const auto& destroy, auto check>
class LibraryHandles : NotCopied {
 public:
  LibraryHandles() = default;
  ~LibraryHandles() {
    for (const auto& [device, handle] : by_device_) destroy(handle);
  }
  /// `device` must be the thread's current device. `call` is the name of `create`.
  Handle of(Device device, const char* call) {
    Handle& handle = by_device_[device.index];
    if (!handle) check(call, create(&handle));
    return handle;
  }

 private:
  std::unordered_map<int, Handle> by_device_;
};

}  // namespace weft::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unordered_map>

#include "weft/device.h"
#include "weft/error.h"

namespace weft::cuda {

/// Throws std::runtime_error with the name of the call and of the status when it is not 0, which
/// means success in NVIDIA's libraries. `name_of` is the library's function for that name.
template <class Status, class NameOf>
void check_status(const char* call, Status status, const NameOf& name_of) {
  if (static_cast<int>(status) == 0) [[likely]]
    return;
  fail_call(call, name_of(status), " (", static_cast<int>(status), ")");
}

/// Handles of a library, one per device, for one thread. `create` and `destroy` are functions of
/// the library; `check(call, status)` throws.
template <class Handle, const auto& create, const auto& destroy, auto check> class LibraryHandles {
 public:
  LibraryHandles() = default;
  LibraryHandles(const LibraryHandles&) = delete;
  LibraryHandles& operator=(const LibraryHandles&) = delete;
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

// SPDX-License-Identifier: Apache-2.0
#include "src/cuda/streams.h"

#include <array>
#include <map>

#include "src/cuda/runtime.h"
#include "weft/context.h"

namespace weft::cuda {

namespace {

/// The streams of one thread. They end with it.
struct ThreadStreams {
  std::map<int, std::array<void*, kStreamRoles>> by_device;

  ~ThreadStreams() {
    for (const auto& [device, handles] : by_device) {
      for (void* handle : handles) {
        if (handle) destroy_stream(device, handle);
      }
    }
  }
};

}  // namespace

Stream stream_for(Device device, StreamRole role) {
  thread_local ThreadStreams streams;
  use_device(device.index);
  void*& handle = streams.by_device[device.index][static_cast<size_t>(role)];
  if (!handle) [[unlikely]]
    handle = create_stream(device.index);
  return {device, handle};
}

Stream current_stream(Device device) {
  const Stream& given = Context::current().stream;
  // A CPU's Context has no stream: its handle says so.
  return given.handle && given.device == device ? given : stream_for(device, StreamRole::compute);
}

}  // namespace weft::cuda

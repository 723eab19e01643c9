// SPDX-License-Identifier: Apache-2.0
#include "src/cuda/kept_device_blocks.h"

#include "src/cuda/runtime.h"
#include "src/memory_blocks.h"
#include "weft/context.h"

namespace weft::cuda {

KeptDeviceBlocks::Place KeptDeviceBlocks::place_on(Device device) {
  const Stream& stream = Context::current().stream;
  const bool is_other =
      stream.handle && stream.device == device && stream != stream_for(device, StreamRole::compute);
  return {device.index, is_other ? stream.handle : nullptr};
}

void* KeptDeviceBlocks::take(size_t bytes, Device device) {
  const int index = size_class(bytes);
  const size_t size = class_bytes(index);
  auto& classes = kept_[place_on(device)];
  if (classes.empty()) classes.resize(kSizeClasses);
  if (auto& blocks = classes[static_cast<size_t>(index)]; !blocks.empty()) {
    void* data = blocks.back();
    blocks.pop_back();
    bytes_ -= static_cast<int64_t>(size);
    return data;
  }
  ++fresh_;
  void* data = allocate_on_device(device.index, size);
  if (!data) {
    release();
    data = allocate_on_device(device.index, size);
  }
  return data;
}

void KeptDeviceBlocks::put(void* data, size_t bytes, Device device) {
  const int index = size_class(bytes);
  auto& classes = kept_[place_on(device)];
  if (classes.empty()) classes.resize(kSizeClasses);
  classes[static_cast<size_t>(index)].push_back(data);
  bytes_ += static_cast<int64_t>(class_bytes(index));
}

void KeptDeviceBlocks::release() {
  for (auto& [place, classes] : kept_) {
    const Device device{DeviceKind::cuda, static_cast<int8_t>(place.first)};
    for (std::vector<void*>& blocks : classes) {
      for (void* data : blocks) give_back(data, device);
      blocks.clear();
    }
  }
  bytes_ = 0;
}

// cudaFree waits for the device's work by itself.
void give_back(void* data, Device device) { free_on_device(device.index, data); }

}  // namespace weft::cuda

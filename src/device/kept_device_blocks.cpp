// SPDX-License-Identifier: Apache-2.0
#include "src/device/kept_device_blocks.h"

#include <algorithm>

#include "src/device/cuda/runtime.h"
#include "src/device/cuda/streams.h"
#include "src/device/memory_blocks.h"
#include "weft/context.h"

namespace weft::cuda {

KeptDeviceBlocks::Place KeptDeviceBlocks::place_on(Device device) {
  const Stream& stream = Context::current().stream;
  const bool is_other =
      stream.handle && stream.device == device && stream != stream_for(device, StreamRole::compute);
  return {device.index, is_other ? stream.handle : nullptr, capture_number()};
}

KeptDeviceBlocks::Classes& KeptDeviceBlocks::kept_at(const Place& place) {
  Classes& classes = kept_[place];
  if (classes.empty()) classes.resize(kSizeClasses);
  return classes;
}

void* KeptDeviceBlocks::take(size_t bytes, Device device) {
  const int index = size_class(bytes);
  if (index >= kSizeClasses) return nullptr;
  const size_t size = class_bytes(index);
  const Place place = place_on(device);
  void* data = nullptr;
  if (auto& blocks = kept_at(place)[static_cast<size_t>(index)]; !blocks.empty()) {
    data = blocks.back();
    blocks.pop_back();
    bytes_ -= static_cast<int64_t>(size);
  } else {
    ++fresh_;
    data = allocate_on_device(device.index, size);
    if (!data && place.capture == 0) {  // freeing may synchronise, which would invalidate a capture
      release();
      data = allocate_on_device(device.index, size);
    }
    if (data && place.stream && is_side(Context::current().stream)) of_side_.insert(data);
  }
  if (data && place.capture != 0) taken_by_captures_[data] = place.capture;
  return data;
}

void KeptDeviceBlocks::put(void* data, size_t bytes, Device device) {
  const int index = size_class(bytes);
  Place place = place_on(device);
  if (!taken_by_captures_.empty()) {
    const auto taken = taken_by_captures_.find(data);
    if (taken != taken_by_captures_.end()) place.capture = taken->second;
  }
  kept_at(place)[static_cast<size_t>(index)].push_back(data);
  bytes_ += static_cast<int64_t>(class_bytes(index));
}

void KeptDeviceBlocks::exchange(const Stream& side) {
  const Place here = place_on(side.device);
  if (here.capture != 0) return;
  Classes &own = kept_at(here), &aside = kept_at({here.device, side.handle, 0});
  const auto give = [](std::vector<void*>& from, std::vector<void*>& to, auto stays) {
    const auto given = std::stable_partition(from.begin(), from.end(), stays);
    to.insert(to.end(), given, from.end());
    from.erase(given, from.end());
  };
  for (size_t index = 0; index < own.size(); ++index) {
    give(own[index], aside[index], [&](void* data) { return !of_side_.contains(data); });
    give(aside[index], own[index], [&](void* data) { return of_side_.contains(data); });
  }
}

void KeptDeviceBlocks::give_back_all(const Place& place, Classes& classes) {
  for (size_t index = 0; index < classes.size(); ++index) {
    for (void* data : classes[index]) {
      of_side_.erase(data);
      free_on_device(place.device, data);  // waits for the device's work
    }
    bytes_ -= static_cast<int64_t>(classes[index].size() * class_bytes(static_cast<int>(index)));
    classes[index].clear();
  }
}

void KeptDeviceBlocks::release() {
  for (auto& [place, classes] : kept_) {
    if (place.capture == 0) give_back_all(place, classes);
  }
}

void KeptDeviceBlocks::release_all() {
  for (auto& [place, classes] : kept_) give_back_all(place, classes);
}

void KeptDeviceBlocks::give_up(uint64_t capture) {
  for (auto& [place, classes] : kept_) {
    if (place.capture == capture) give_back_all(place, classes);
  }
  std::erase_if(kept_, [&](const auto& kept) { return kept.first.capture == capture; });
  std::erase_if(taken_by_captures_, [&](const auto& taken) { return taken.second == capture; });
}

}  // namespace weft::cuda

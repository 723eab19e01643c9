// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "weft/device.h"

namespace weft::cuda {

/// Memory of devices that one thread freed and keeps for reuse, by the stream in whose scope it was
/// freed: taken again in a scope of that stream, it may be used there at once.
class KeptDeviceBlocks {
 public:
  /// nullptr when there is none.
  void* take(size_t bytes, Device device);
  void put(void* data, size_t bytes, Device device);
  /// Gives all back to the devices, when their work is done.
  void release();
  int64_t bytes() const { return bytes_; }
  /// How often nothing kept would do.
  int64_t fresh() const { return fresh_; }

 private:
  using Place = std::pair<int, void*>;
  /// The device and the current stream; null for the stream of computing.
  static Place place_on(Device device);

  /// By place, then by size class.
  std::map<Place, std::vector<std::vector<void*>>> kept_;
  int64_t bytes_ = 0, fresh_ = 0;
};

/// One block back to its device, when its work is done.
void give_back(void* data, Device device);

}  // namespace weft::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "weft/device.h"

namespace weft::cuda {

/// Memory of devices that one thread freed and keeps for reuse. What it takes again it may use at
/// once on its stream of computing, where the work that used it before was queued.
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
  /// By device, then by size class.
  std::map<int, std::vector<std::vector<void*>>> kept_;
  int64_t bytes_ = 0, fresh_ = 0;
};

/// One block back to its device, when its work is done.
void give_back(void* data, Device device);

}  // namespace weft::cuda

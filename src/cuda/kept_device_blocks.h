// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "weft/device.h"

namespace weft::cuda {

/// Memory of devices that one thread freed and keeps for reuse, by the stream in whose scope it was
/// freed: taken again in a scope of that stream, it may be used there at once. What a capture takes
/// and frees is its own until it is given up: each time that it is played it is used again.
class KeptDeviceBlocks {
 public:
  /// nullptr when there is none.
  void* take(size_t bytes, Device device);
  void put(void* data, size_t bytes, Device device);
  /// Gives all but the captures' back to the devices, when their work is done.
  void release();
  /// The captures' too: nobody plays them any more.
  void release_all();
  /// The same with what is that capture's; what it took and is in use becomes like any other.
  void give_up(uint64_t capture);
  int64_t bytes() const { return bytes_; }
  /// How often nothing kept would do.
  int64_t fresh() const { return fresh_; }

 private:
  struct Place {
    int device;
    /// Null for the stream of computing.
    void* stream;
    uint64_t capture;
    auto operator<=>(const Place&) const = default;
  };
  /// A list a size class.
  using Classes = std::vector<std::vector<void*>>;

  static Place place_on(Device device);
  Classes& kept_at(const Place& place);
  void give_back_all(const Place& place, Classes& classes);

  std::map<Place, Classes> kept_;
  /// What captures took, in use or not.
  std::unordered_map<void*, uint64_t> taken_by_captures_;
  int64_t bytes_ = 0, fresh_ = 0;
};

/// One block back to its device, when its work is done.
void give_back(void* data, Device device);

}  // namespace weft::cuda

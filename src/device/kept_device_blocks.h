// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "weft/stream.h"

namespace weft::cuda {

/// Device memory that one thread freed and keeps for reuse, separately for each stream in whose
/// scope it was freed: a scope of that stream may use it again at once. Memory that a capture
/// allocates and frees stays reserved for it until `give_up`, because each replay uses it again.
class KeptDeviceBlocks {
 public:
  /// Returns nullptr when the device has no memory left.
  void* take(size_t bytes, Device device);
  void put(void* data, size_t bytes, Device device);
  /// Returns all blocks except the captures' to the devices, after their work is done.
  void release();
  /// Also returns the captures' blocks; their graphs must not be replayed any more.
  void release_all();
  /// The same for one capture's free blocks; blocks in use lose their reservation.
  void give_up(uint64_t capture);
  /// The current stream and `side`, of StreamRole::side, have waited for each other: each gets back
  /// the blocks that were new on it and that the other one freed.
  void exchange(const Stream& side);
  int64_t bytes() const { return bytes_; }
  /// The number of requests that no kept block could satisfy.
  int64_t fresh() const { return fresh_; }

 private:
  struct Place {
    int device;
    /// Null for the compute stream.
    void* stream;
    uint64_t capture;
    auto operator<=>(const Place&) const = default;
  };
  /// One list per size class.
  using Classes = std::vector<std::vector<void*>>;

  static Place place_on(Device device);
  Classes& kept_at(const Place& place);
  void give_back_all(const Place& place, Classes& classes);

  std::map<Place, Classes> kept_;
  /// Memory that captures allocated, in use or free.
  std::unordered_map<void*, uint64_t> taken_by_captures_;
  /// Blocks that were new on StreamRole::side, in use or free.
  std::unordered_set<void*> of_side_;
  int64_t bytes_ = 0, fresh_ = 0;
};

}  // namespace weft::cuda

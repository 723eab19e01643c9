// SPDX-License-Identifier: Apache-2.0
#include "nn/offloaded_update.h"

#include <algorithm>
#include <array>

#include "weft/error.h"
#include "weft/ops/factories.h"
#include "weft/stream.h"

namespace weft {

/// Elements of each array: 4 MiB of f32, which take 0.08 ms on a bus of 50 GB/s.
static constexpr int64_t kPart = int64_t{1} << 20;

Tensor part_of(const Tensor& array, int64_t begin, int64_t count) {
  const auto* memory = static_cast<const char*>(array.storage()->data());
  const auto bytes = static_cast<const char*>(array.block().data) - memory;
  const auto offset = bytes / static_cast<int64_t>(size_of(array.dtype()));
  return tensor_in(array.storage(), offset + begin, {count}, array.dtype());
}

namespace {

/// Device memory for one part of each array that is stored elsewhere.
struct Room {
  Tensors places;
  /// Recorded after the part has been copied back.
  Event free;
};

class UpdateByParts {
 public:
  UpdateByParts(Device device, const std::vector<UpdatedArray>& arrays)
      : device_(device), arrays_(arrays), elements_(arrays[0].array.numel()) {
    for (const UpdatedArray& updated : arrays) {
      if (updated.array.block().is_dense()) continue;
      fail("optimizer: an array ", updated.array.shape(),
           " that passes through a GPU has strides, expected a dense one");
    }
    for (Room& room : rooms_) {
      for (const UpdatedArray& updated : arrays) room.places.push_back(place_for(updated));
    }
    // The memory of `rooms_` was allocated on the compute stream.
    Event::record(computing()).wait(coming());
  }

  void run(const std::function<void(const Tensors&)>& work) {
    for (int64_t begin = 0, number = 0; begin < elements_; begin += kPart, ++number) {
      Room& room = rooms_[static_cast<size_t>(number % 2)];
      const int64_t count = std::min(kPart, elements_ - begin);
      room.free.wait(coming());
      const Tensors parts = bring(room, begin, count);
      Event::record(coming()).wait(computing());
      work(parts);
      Event::record(computing()).wait(going());
      send_home(parts, begin, count);
      room.free = Event::record(going());
    }
    for (const Room& room : rooms_) room.free.wait(computing());
  }

 private:
  Stream coming() const { return stream_for(device_, StreamRole::gather); }
  Stream computing() const { return current_stream(device_); }
  Stream going() const { return stream_for(device_, StreamRole::scatter); }
  bool rests_elsewhere(const UpdatedArray& updated) const {
    return updated.array.device() != device_;
  }

  Tensor place_for(const UpdatedArray& updated) const {
    if (!rests_elsewhere(updated)) return {};
    return empty({std::min(kPart, elements_)}, {.dtype = updated.array.dtype(), .device = device_});
  }

  Tensors bring(const Room& room, int64_t begin, int64_t count) const {
    const StreamScope scope(coming());
    Tensors parts;
    for (size_t i = 0; i < arrays_.size(); ++i) {
      Tensor part = part_of(arrays_[i].array, begin, count);
      if (rests_elsewhere(arrays_[i])) {
        const Tensor place = part_of(room.places[i], 0, count);
        transfer_(place, part);
        part = place;
      }
      parts.push_back(std::move(part));
    }
    return parts;
  }

  void send_home(const Tensors& parts, int64_t begin, int64_t count) const {
    const StreamScope scope(going());
    for (size_t i = 0; i < arrays_.size(); ++i) {
      if (!rests_elsewhere(arrays_[i]) || !arrays_[i].changes) continue;
      transfer_(part_of(arrays_[i].array, begin, count), parts[i]);
    }
  }

  const Device device_;
  const std::vector<UpdatedArray>& arrays_;
  const int64_t elements_;
  std::array<Room, 2> rooms_;
};

}  // namespace

void update_offloaded(Device device, const std::vector<UpdatedArray>& arrays,
                      const std::function<void(const Tensors& parts)>& work) {
  if (arrays[0].array.numel() > 0) UpdateByParts(device, arrays).run(work);
}

void await_offloaded(Device device) {
  Event::record(stream_for(device, StreamRole::scatter)).synchronize();
}

}  // namespace weft

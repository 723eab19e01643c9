// SPDX-License-Identifier: Apache-2.0
#include "nn/offloaded_update.h"

#include <algorithm>
#include <array>

#include "weft/device.h"
#include "weft/error.h"
#include "weft/extend/disk_tensor.h"
#include "weft/optimizers.h"

namespace weft {

/// Elements of a window of each array: whole blocks of every dtype.
static constexpr int64_t kWindow = DiskMemory::kBlock;
/// Windows in memory at a time: one is read, one updated, one written.
static constexpr size_t kRooms = 3;

namespace {

/// A part of one update.
struct DiskWindow {
  size_t update;
  int64_t begin, count;
};

/// Memory for the parts of a window that rest on disk, by position, and what is under way there.
struct DiskRoom {
  std::vector<DiskBuffer> buffers;
  std::vector<DiskMemory::Transfer> reads, writes;
  Tensors parts;
};

/// Parts are taken from an array in memory as if its elements were adjacent.
void check_dense(const Tensor& array) {
  if (array.block().is_dense()) return;
  fail("optimizer: an array ", array.shape(),
       " whose state or value rests on disk has strides, expected a dense one");
}

class UpdateThroughMemory {
 public:
  explicit UpdateThroughMemory(const std::vector<std::vector<UpdatedArray>>& updates)
      : updates_(updates) {
    std::vector<int64_t> bytes;
    for (size_t i = 0; i < updates.size(); ++i) {
      const int64_t elements = updates[i][0].array.numel();
      for (int64_t begin = 0; begin < elements; begin += kWindow) {
        windows_.push_back({i, begin, std::min(kWindow, elements - begin)});
      }
      places_.emplace_back();
      for (size_t at = 0; at < updates[i].size(); ++at) {
        const Tensor& array = updates[i][at].array;
        places_.back().push_back(disk_place(array));
        bytes.resize(std::max(bytes.size(), at + 1));
        if (!places_.back().back().memory) {
          check_dense(array);
          continue;
        }
        bytes[at] = std::max(
            bytes[at], std::min(kWindow, elements) * static_cast<int64_t>(size_of(array.dtype())));
      }
    }
    const PurposeScope purpose(Purpose::optimizer);
    const bool pinned = device_count(DeviceKind::cuda) > 0;
    for (DiskRoom& room : rooms_) {
      for (const int64_t size : bytes) {
        room.buffers.push_back(size > 0 ? DiskBuffer(size, pinned) : DiskBuffer());
      }
    }
  }

  void run(const std::function<void(size_t, const Tensors&)>& work) {
    if (!windows_.empty()) read(0);
    for (size_t i = 0; i < windows_.size(); ++i) {
      if (i + 1 < windows_.size()) read(i + 1);
      DiskRoom& room = rooms_[i % kRooms];
      finish(room.reads);
      work(windows_[i].update, room.parts);
      write(i);
    }
    for (DiskRoom& room : rooms_) finish(room.writes);
  }

 private:
  static void finish(std::vector<DiskMemory::Transfer>& transfers) {
    for (auto& transfer : transfers) transfer.wait();
    transfers.clear();
  }

  void read(size_t number) {
    const auto [update, begin, count] = windows_[number];
    DiskRoom& room = rooms_[number % kRooms];
    finish(room.writes);
    room.parts.clear();
    for (size_t i = 0; i < updates_[update].size(); ++i) {
      const Tensor& array = updates_[update][i].array;
      const DiskPlace& place = places_[update][i];
      if (!place.memory) {
        room.parts.push_back(part_of(array, begin, count));
        continue;
      }
      const auto element = static_cast<int64_t>(size_of(array.dtype()));
      const DiskBuffer& buffer = room.buffers[i];
      room.parts.push_back(
          tensor_in(buffer.storage(), buffer.offset() / element, {count}, array.dtype()));
      room.reads.push_back(
          place.memory->read(place.offset + begin * element, count * element, buffer.data(), true));
    }
  }

  void write(size_t number) {
    const auto [update, begin, count] = windows_[number];
    DiskRoom& room = rooms_[number % kRooms];
    for (size_t i = 0; i < updates_[update].size(); ++i) {
      const UpdatedArray& updated = updates_[update][i];
      const DiskPlace& place = places_[update][i];
      if (!place.memory || !updated.changes) continue;
      const auto element = static_cast<int64_t>(size_of(updated.array.dtype()));
      room.writes.push_back(place.memory->write(place.offset + begin * element, count * element,
                                                room.buffers[i].data(), true));
    }
  }

  const std::vector<std::vector<UpdatedArray>>& updates_;
  std::vector<std::vector<DiskPlace>> places_;
  std::vector<DiskWindow> windows_;
  std::array<DiskRoom, kRooms> rooms_;
};

}  // namespace

void update_through_memory(const std::vector<std::vector<UpdatedArray>>& updates,
                           const std::function<void(size_t, const Tensors&)>& work) {
  UpdateThroughMemory(updates).run(work);
}

int64_t update_buffer_bytes(const std::vector<int64_t>& element_bytes, int64_t elements) {
  int64_t bytes = 0;
  for (const int64_t element : element_bytes) {
    if (element > 0) bytes += DiskBuffer::allocated(std::min(kWindow, elements) * element);
  }
  return bytes * static_cast<int64_t>(kRooms);
}

}  // namespace weft

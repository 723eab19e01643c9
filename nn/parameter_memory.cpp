// SPDX-License-Identifier: Apache-2.0
#include "nn/parameter_memory.h"

#include <array>
#include <map>
#include <numeric>

#include "weft/device.h"
#include "weft/error.h"
#include "weft/extend/disk_tensor.h"
#include "weft/ops/factories.h"
#include "weft/optimizers.h"
#include "weft/stream.h"

namespace weft {

static char* start_of(const MemoryBlock& block) { return static_cast<char*>(block.data); }

/// Orders tensors of one storage, in memory or on disk.
static uintptr_t place_of(const Tensor& tensor) {
  const DiskPlace place = disk_place(tensor);
  return place.memory ? static_cast<uintptr_t>(place.offset)
                      : reinterpret_cast<uintptr_t>(tensor.block().data);
}

static bool follows(const Tensor& before, const Tensor& after) {
  if (!before || !after) return !before && !after;
  if (before.storage().get() != after.storage().get() || before.dtype() != after.dtype()) {
    return false;
  }
  if (const DiskPlace place = disk_place(before); place.memory) {
    return place.memory->next(place.offset + place.bytes) == disk_place(after).offset;
  }
  const MemoryBlock a = before.block(), b = after.block();
  const auto bytes = a.numel() * static_cast<int64_t>(size_of(a.dtype));
  return a.data && a.is_dense() && b.is_dense() && start_of(a) + bytes == start_of(b);
}

bool is_adjacent(const Tensors& tensors, const Run& run) {
  for (size_t i = 1; i < run.size(); ++i) {
    if (!follows(tensors[run[i - 1]], tensors[run[i]])) return false;
  }
  return true;
}

std::vector<Run> adjacent_runs(const std::vector<const Tensors*>& lists, std::vector<size_t> of,
                               const std::function<bool(size_t, size_t)>& may_follow) {
  const Tensors& first = *lists[0];
  std::erase_if(of, [&](size_t i) { return first[i].local().numel() == 0; });
  // Storages in order of occurrence, not of address: sums must not depend on where memory is
  // allocated.
  std::map<const Storage*, size_t> order;
  for (size_t i : of) order.try_emplace(first[i].storage().get(), order.size());
  std::stable_sort(of.begin(), of.end(), [&](size_t a, size_t b) {
    const size_t storage_a = order[first[a].storage().get()];
    const size_t storage_b = order[first[b].storage().get()];
    if (storage_a != storage_b) return storage_a < storage_b;
    return place_of(first[a]) < place_of(first[b]);
  });
  std::vector<Run> runs;
  for (size_t i : of) {
    const bool joins = !runs.empty() && (!may_follow || may_follow(runs.back().back(), i)) &&
                       std::all_of(lists.begin(), lists.end(), [&](const Tensors* list) {
                         return follows((*list)[runs.back().back()], (*list)[i]);
                       });
    if (!joins) runs.emplace_back();
    runs.back().push_back(i);
  }
  return runs;
}

static int64_t elements_in(const Tensors& tensors, const Run& run) {
  int64_t elements = 0;
  for (size_t i : run) elements += tensors[i].local().numel();
  return elements;
}

Tensor copied_flat(const Tensors& tensors, const Run& run) {
  if (!rests_on_disk(tensors[run[0]])) return flat(tensors, run);
  if (run.size() == 1) return in_memory(tensors[run[0]]).local();
  const DType dtype = tensors[run[0]].dtype();
  Tensor all = empty({elements_in(tensors, run)}, {.dtype = dtype});
  auto* at = static_cast<char*>(all.block().data);
  for (size_t i : run) {
    const DiskPlace place = disk_place(tensors[i]);
    place.memory->read(place.offset, place.bytes, at).wait();
    at += place.bytes;
  }
  return all;
}

/// Elements [begin, begin + count) of a dense local array.
static Tensor part_of(const Tensor& array, int64_t begin, int64_t count) {
  const auto* memory = static_cast<const char*>(array.storage()->data());
  const auto bytes = static_cast<const char*>(array.block().data) - memory;
  const auto offset = bytes / static_cast<int64_t>(size_of(array.dtype()));
  return tensor_in(array.storage(), offset + begin, {count}, array.dtype());
}

Tensor flat(const Tensors& tensors, const Run& run) {
  const Tensor& first = tensors[run[0]];
  if (run.size() == 1) return first.local();
  return part_of(first, 0, elements_in(tensors, run));
}

/// Returns zeros for the state of parameters that are used on `device`: in pinned memory of the
/// host if a tier keeps them there for a GPU.
static Tensor memory_for(Device device, const Tier& tier, int64_t elements, DType dtype) {
  if (!tier.is_host() || device.kind != DeviceKind::cuda) {
    return zeros({elements}, {.dtype = dtype, .device = device});
  }
  const auto bytes = static_cast<size_t>(elements) * size_of(dtype);
  const Tensor memory = tensor_in(Storage::allocate_pinned(bytes), 0, {elements}, dtype);
  fill_(memory, 0);
  return memory;
}

static Tensors state_in_memory(const Tier& tier, const std::vector<NamedParameter>& parameters,
                               DType asked) {
  PurposeScope purpose(Purpose::optimizer);
  Tensors values;
  for (const NamedParameter& named : parameters) values.push_back(named.parameter->value());
  std::vector<size_t> all(values.size());
  std::iota(all.begin(), all.end(), size_t{0});
  Tensors moment(values.size());
  for (const Run& run : adjacent_runs({&values}, all)) {
    const DType dtype = state_dtype(values[run[0]], asked);
    const Device device = parameters[run[0]].parameter->device();
    const Tensor memory = memory_for(device, tier, elements_in(values, run), dtype);
    int64_t offset = 0;
    for (size_t i : run) {
      moment[i] =
          tensor_in(memory.storage(), offset, values[i].shape(), dtype, values[i].sharding());
      offset += values[i].local().numel();
    }
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (moment[i]) continue;
    const Device device = parameters[i].parameter->device();
    const bool on_host = tier.is_host() && device.kind == DeviceKind::cuda;
    moment[i] = zeros(values[i].shape(), {.dtype = state_dtype(values[i], asked),
                                          .device = on_host ? cpu : device,
                                          .sharding = values[i].sharding()});
  }
  return moment;
}

ParameterState new_state(const Tier& tier, const std::string& what,
                         const std::vector<NamedParameter>& parameters, DType asked) {
  if (!tier.is_disk()) return {state_in_memory(tier, parameters, asked)};
  std::vector<DiskMemory::Array> arrays;
  for (const NamedParameter& named : parameters) {
    const Tensor& value = named.parameter->value();
    const auto element = static_cast<int64_t>(size_of(state_dtype(value, asked)));
    arrays.push_back(
        {concat(what, " of parameter ", named.name()), value.local().numel() * element});
  }
  ParameterState state{
      {}, DiskMemory::make(tier.directory(), std::move(arrays), DiskPath::cached_if_it_fits)};
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& value = parameters[i].parameter->value();
    const DType dtype = state_dtype(value, asked);
    const int64_t offset = state.file->offset(i) / static_cast<int64_t>(size_of(dtype));
    state.tensors.push_back(
        tensor_in(state.file->storage(), offset, value.shape(), dtype, value.sharding()));
  }
  return state;
}

/// Elements of each array: 4 MiB of f32, which take 0.08 ms on a bus of 50 GB/s.
static constexpr int64_t kPart = int64_t{1} << 20;

/// Parts are taken from an array as if its elements were adjacent.
static void check_dense(const Tensor& array, const char* which) {
  if (array.block().is_dense()) return;
  fail("optimizer: an array ", array.shape(), ' ', which, " has strides, expected a dense one");
}

void update_offloaded(Device device, const std::vector<UpdatedArray>& arrays,
                      const std::function<void(const Tensors& parts)>& work) {
  /// Device memory for one part of each array that is stored elsewhere.
  struct Room {
    Tensors places;
    /// Recorded after the part has been copied back.
    Event free;
  };
  const int64_t elements = arrays[0].array.numel();
  if (elements == 0) return;
  std::array<Room, 2> rooms;
  for (const auto& [array, changes] : arrays) {
    check_dense(array, "that passes through a GPU");
    for (Room& room : rooms) {
      room.places.emplace_back();
      if (array.device() == device) continue;
      room.places.back() =
          empty({std::min(kPart, elements)}, {.dtype = array.dtype(), .device = device});
    }
  }
  const Stream coming = stream_for(device, StreamRole::gather), computing = current_stream(device);
  const Stream going = stream_for(device, StreamRole::scatter);
  // The places were allocated on the compute stream.
  Event::record(computing).wait(coming);
  for (int64_t begin = 0, number = 0; begin < elements; begin += kPart, ++number) {
    Room& room = rooms[static_cast<size_t>(number % 2)];
    const int64_t count = std::min(kPart, elements - begin);
    Tensors rest, parts;
    for (const UpdatedArray& updated : arrays) rest.push_back(part_of(updated.array, begin, count));
    room.free.wait(coming);
    for (size_t i = 0; i < arrays.size(); ++i) {
      parts.push_back(room.places[i] ? part_of(room.places[i], 0, count) : rest[i]);
      const StreamScope scope(coming);
      if (room.places[i]) transfer_(parts[i], rest[i]);
    }
    Event::record(coming).wait(computing);
    work(parts);
    Event::record(computing).wait(going);
    const StreamScope scope(going);
    for (size_t i = 0; i < arrays.size(); ++i) {
      if (room.places[i] && arrays[i].changes) transfer_(rest[i], parts[i]);
    }
    room.free = Event::record(going);
  }
  for (const Room& room : rooms) room.free.wait(computing);
}

void await_offloaded(Device device) {
  Event::record(stream_for(device, StreamRole::scatter)).synchronize();
}

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
      for (size_t at = 0; at < updates[i].size(); ++at) {
        const Tensor& array = updates[i][at].array;
        bytes.resize(std::max(bytes.size(), at + 1));
        if (!rests_on_disk(array)) {
          check_dense(array, "whose state or value rests on disk");
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
      const DiskPlace place = disk_place(array);
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
      const DiskPlace place = disk_place(updated.array);
      if (!place.memory || !updated.changes) continue;
      const auto element = static_cast<int64_t>(size_of(updated.array.dtype()));
      room.writes.push_back(place.memory->write(place.offset + begin * element, count * element,
                                                room.buffers[i].data(), true));
    }
  }

  const std::vector<std::vector<UpdatedArray>>& updates_;
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

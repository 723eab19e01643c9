// SPDX-License-Identifier: Apache-2.0
#include "nn/parameter_memory.h"

#include <algorithm>
#include <functional>
#include <map>

#include "weft/extend/disk_tensor.h"
#include "weft/ops/factories.h"

namespace weft {

static char* start_of(const MemoryBlock& block) { return static_cast<char*>(block.data); }

/// Orders tensors of one storage, in memory or on disk.
static uintptr_t place_of(const Tensor& tensor) {
  const DiskPlace place = disk_place(tensor);
  return place.memory ? static_cast<uintptr_t>(place.offset)
                      : reinterpret_cast<uintptr_t>(tensor.block().data);
}

static bool follows(const Tensor& before, const Tensor& after) {
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
  std::erase_if(of, [&](size_t i) { return first[i].box().shape.product() == 0; });
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
    const bool joins = !runs.empty() && may_follow(runs.back().back(), i) &&
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
  for (size_t i : run) elements += tensors[i].box().shape.product();
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

Tensor flat(const Tensors& tensors, const Run& run) {
  const Tensor& first = tensors[run[0]];
  if (run.size() == 1) return first.local();
  return part_of(first, 0, elements_in(tensors, run));
}

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include "nn/adjacency.h"

#include <algorithm>
#include <functional>
#include <map>

namespace weft {

static char* start_of(const MemoryBlock& block) { return static_cast<char*>(block.data); }

static bool follows(const Tensor& before, const Tensor& after) {
  if (before.storage().get() != after.storage().get() || before.dtype() != after.dtype()) {
    return false;
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
  std::erase_if(of, [&](size_t i) { return first[i].block().numel() == 0; });
  // Storages in order of occurrence, not of address: sums must not depend on where memory is
  // allocated.
  std::map<const Storage*, size_t> order;
  for (size_t i : of) order.try_emplace(first[i].storage().get(), order.size());
  std::stable_sort(of.begin(), of.end(), [&](size_t a, size_t b) {
    const size_t storage_a = order[first[a].storage().get()];
    const size_t storage_b = order[first[b].storage().get()];
    if (storage_a != storage_b) return storage_a < storage_b;
    return std::less<>()(start_of(first[a].block()), start_of(first[b].block()));
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

Tensor flat(const Tensors& tensors, const Run& run) {
  const Tensor& first = tensors[run[0]];
  if (run.size() == 1) return first.local();
  int64_t elements = 0;
  for (size_t i : run) elements += tensors[i].block().numel();
  const auto* memory = static_cast<const char*>(first.storage()->data());
  const auto offset =
      (start_of(first.block()) - memory) / static_cast<int64_t>(size_of(first.dtype()));
  return tensor_in(first.storage(), offset, {elements}, first.dtype());
}

}  // namespace weft

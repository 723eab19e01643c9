// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/filter.hpp>
#include <range/v3/view/indices.hpp>
#include <range/v3/view/zip.hpp>

#include "checkpoint/rank_file.h"
#include "weft/error.h"

namespace weft {

namespace views = ranges::views;

static std::vector<int64_t> content_of_box(const Box& box) {
  std::vector<int64_t> content(box.offset.begin(), box.offset.end());
  content.insert(content.end(), box.shape.begin(), box.shape.end());
  return content;
}

static std::shared_ptr<const Partition> partition_of(const SavedSharding& sharding,
                                                     const Shape& shape, int ranks) {
  auto partition = std::make_shared<Partition>();
  partition->box_of_rank.assign(static_cast<size_t>(ranks), -1);
  const bool is_empty = shape.product() == 0;
  std::map<std::vector<int64_t>, int> numbers;
  const std::vector<int> sizes = sharding.sizes();
  for (int rank = 0; rank < ranks; ++rank) {
    const Box box = is_empty ? Box{Dims::filled(shape.ndim(), 0), shape}
                             : box_of(sharding.pattern, sizes, shape, rank);
    if (!is_empty && box.shape.product() == 0) continue;
    const auto [at, is_new] =
        numbers.try_emplace(content_of_box(box), static_cast<int>(partition->boxes.size()));
    if (is_new) {
      partition->boxes.push_back(box);
      partition->holders.emplace_back();
    }
    partition->holders[static_cast<size_t>(at->second)].push_back(rank);
    partition->box_of_rank[static_cast<size_t>(rank)] = at->second;
  }
  return partition;
}

static int64_t bytes_of_box(const Box& box, DType dtype) {
  return box.shape.product() * static_cast<int64_t>(size_of(dtype));
}

static bool is_shared(const Partition& partition) {
  return std::any_of(partition.holders.begin(), partition.holders.end(),
                     [](const auto& holders) { return holders.size() > 1; });
}

Ownership::Ownership(const Manifest& manifest) {
  constexpr int64_t most = int64_t{1} << 28;
  const auto tensors = static_cast<int64_t>(manifest.tensors.size());
  if (tensors * manifest.ranks > most) {
    fail("checkpoint: it has ", tensors, " tensors on ", manifest.ranks,
         " ranks, expected at most ", most, " parts");
  }
  // A manifest of a few kilobytes may speak of any world: each partition is a list of its ranks.
  constexpr int64_t most_listed = int64_t{1} << 22;
  std::map<std::pair<size_t, std::vector<int64_t>>, std::shared_ptr<const Partition>> known;
  for (const SavedTensor& tensor : manifest.tensors) {
    auto& partition = known[{tensor.layout, {tensor.shape.begin(), tensor.shape.end()}}];
    if (!partition) {
      if (static_cast<int64_t>(known.size()) * manifest.ranks > most_listed) {
        fail("checkpoint: tensors have ", known.size(), " or more shapes and layouts on ",
             manifest.ranks, " ranks, expected at most ", most_listed, " different parts");
      }
      partition = partition_of(manifest.layouts[tensor.layout], tensor.shape, manifest.ranks);
    }
    partitions_.push_back(partition);
  }
  owners_.resize(manifest.tensors.size());
  bytes_.assign(static_cast<size_t>(manifest.ranks), 0);
  give_single_holders(manifest);
  give_shared(manifest);
}

void Ownership::give_single_holders(const Manifest& manifest) {
  for (const auto& [partition, tensor] : views::zip(partitions_, manifest.tensors)) {
    for (const auto& [box, holders] : views::zip(partition->boxes, partition->holders)) {
      if (holders.size() > 1) continue;
      bytes_[static_cast<size_t>(holders[0])] += bytes_of_box(box, tensor.dtype);
    }
  }
}

void Ownership::give_shared(const Manifest& manifest) {
  auto shared = views::indices(partitions_.size()) |
                views::filter([&](size_t i) { return is_shared(*partitions_[i]); }) |
                ranges::to<std::vector>();
  const auto first_bytes = [&](size_t i) {
    return bytes_of_box(partitions_[i]->boxes[0], manifest.tensors[i].dtype);
  };
  std::stable_sort(shared.begin(), shared.end(),
                   [&](size_t a, size_t b) { return first_bytes(a) > first_bytes(b); });
  for (size_t i : shared) {
    for (const auto& [box, holders] : views::zip(partitions_[i]->boxes, partitions_[i]->holders)) {
      const int owner = *std::min_element(holders.begin(), holders.end(), [&](int a, int b) {
        return bytes_[static_cast<size_t>(a)] < bytes_[static_cast<size_t>(b)];
      });
      owners_[i].push_back(owner);
      if (holders.size() == 1) continue;
      bytes_[static_cast<size_t>(owner)] += bytes_of_box(box, manifest.tensors[i].dtype);
    }
  }
}

int Ownership::owner(size_t tensor, size_t box) const {
  return owners_[tensor].empty() ? partitions_[tensor]->holders[box][0] : owners_[tensor][box];
}

const Box* Ownership::box_of(size_t tensor, int rank) const {
  const Partition& partition = *partitions_[tensor];
  const int box = partition.box_of_rank[static_cast<size_t>(rank)];
  if (box < 0 || owner(tensor, static_cast<size_t>(box)) != rank) return nullptr;
  return &partition.boxes[static_cast<size_t>(box)];
}

}  // namespace weft

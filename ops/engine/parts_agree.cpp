// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/choose.h"

#include <algorithm>
#include <map>

#include "mesh/grid.h"

namespace weft {

namespace {

using FactorParts = std::vector<std::vector<int64_t>>;

/// Compares the parts of each factor with those that it was seen in before.
class FactorsSeen {
 public:
  explicit FactorsSeen(const Binding& binding) : binding_(binding) {}

  bool agrees(const Binding::BoundArray& array, const Sharding& sharding, const Shape& shape) {
    for (size_t d = 0; d < array.size(); ++d) {
      if (array[d].empty()) continue;
      const int factor = outermost(array[d]);
      if (binding_.factors[static_cast<size_t>(factor)].fetched) continue;
      const FactorParts parts = parts_of(sharding, static_cast<int>(d), shape, factor);
      if (seen_.try_emplace(factor, parts).first->second != parts) return false;
    }
    return true;
  }

 private:
  int64_t size_of(int factor) const { return binding_.factors[static_cast<size_t>(factor)].size; }

  /// The factor that a cut of merged dims passes to: the first that is longer than 1.
  int outermost(const Binding::BoundDim& dim) const {
    const auto found =
        std::find_if(dim.begin(), dim.end(), [&](int factor) { return size_of(factor) != 1; });
    return found == dim.end() ? dim.front() : *found;
  }

  /// The sizes of a dim's parts, in elements of the factor.
  FactorParts parts_of(const Sharding& sharding, int d, const Shape& shape, int factor) const {
    FactorParts parts =
        sizes_of_parts(sharding.pattern(), sharding.body()->grid->sizes(), d, shape[d]);
    const int64_t inner = std::max<int64_t>(1, shape[d] / std::max<int64_t>(1, size_of(factor)));
    for (auto& level : parts) {
      for (int64_t& part : level) part /= inner;
    }
    // A cut by an axis of one device is none.
    std::erase_if(parts, [](const auto& level) { return level.size() == 1; });
    return parts;
  }

  const Binding& binding_;
  std::map<int, FactorParts> seen_;
};

}  // namespace

bool parts_agree(const ChoiceQuery& query, const Choice& choice) {
  const auto is_sized = [](const Sharding& sharding) { return sharding.has_sizes(); };
  if (std::none_of(choice.operands.begin(), choice.operands.end(), is_sized) &&
      std::none_of(choice.results.begin(), choice.results.end(), is_sized)) {
    return true;
  }
  FactorsSeen seen(query.binding);
  for (size_t i = 0; i < choice.operands.size(); ++i) {
    const Shape& shape = query.operands[i]->shape;
    if (!seen.agrees(query.binding.operands[i], choice.operands[i], shape)) return false;
  }
  for (size_t i = 0; i < choice.results.size(); ++i) {
    const Shape& shape = query.binding.result_shapes[i];
    if (!seen.agrees(query.binding.results[i], choice.results[i], shape)) return false;
  }
  return true;
}

bool boundaries_coincide(int64_t size, int64_t inner, std::span<const int> parts) {
  if (parts.empty() || inner == 1 || size == 0) return true;
  for (int index = 0; index < parts[0]; ++index) {
    Chunk outer = chunk_of(size, parts[0], index), merged = chunk_of(size * inner, parts[0], index);
    if (merged.length != outer.length * inner) return false;
    if (outer.length && merged.offset != outer.offset * inner) return false;
    if (!boundaries_coincide(outer.length, inner, parts.subspan(1))) return false;
  }
  return true;
}

static bool keeps_cuts_of(int dim, const Pattern& given, const Pattern& used) {
  for (int axis = 0; axis < given.axes(); ++axis) {
    if (!given[axis].is_shard(dim) && !used[axis].is_shard(dim)) continue;
    if (given[axis] != used[axis] || given.depth(axis) != used.depth(axis)) return false;
  }
  return true;
}

bool keeps_joined(const ChoiceQuery& query, const Choice& choice) {
  const auto [rows, entries] = query.joined;
  for (size_t i = 0; i < choice.operands.size(); ++i) {
    const Binding::BoundArray& array = query.binding.operands[i];
    for (size_t d = 0; d < array.size(); ++d) {
      if (array[d].size() != 1 || (array[d][0] != rows && array[d][0] != entries)) continue;
      const Pattern& given = query.operands[i]->sharding.pattern();
      if (!keeps_cuts_of(static_cast<int>(d), given, choice.operands[i].pattern())) return false;
    }
  }
  return true;
}

}  // namespace weft

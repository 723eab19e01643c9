// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "mesh/grid.h"
#include "ops/engine/choose.h"

namespace weft {

using BoundArray = Binding::BoundArray;
/// The sizes of the parts along each axis of several devices, for each cut of a factor, by how many
/// of its elements are outside of the cut.
using FactorParts = std::map<int64_t, std::vector<std::vector<int64_t>>>;

/// The parts of a dim's factors, in elements of these.
static std::map<int, FactorParts> factor_parts(const Binding& binding, const Sharding& sharding,
                                               int d, int64_t size,
                                               const Binding::BoundDim& factors) {
  std::map<int, FactorParts> made;
  for (const int factor : factors) made[factor];
  const Pattern& pattern = sharding.pattern();
  for (int axis = 0; axis < pattern.axes(); ++axis) {
    if (!pattern[axis].is_shard(d) || pattern.depth(axis) > 0) continue;
    const int64_t outer = pattern[axis].outer();
    const CutFactor cut =
        factor_cut_at(binding, factors, outer).value_or(CutFactor{factors.front(), 1});
    auto parts = sizes_of_parts(pattern, sharding.body()->grid->sizes(), d, size / outer, outer);
    const int64_t inner = std::max<int64_t>(1, place_in(binding, factors, cut.factor).inner);
    for (auto& level : parts) {
      for (int64_t& part : level) part /= inner;
    }
    // A cut by an axis of one device is none.
    std::erase_if(parts, [](const auto& level) { return level.size() == 1; });
    if (!parts.empty()) made[cut.factor][cut.outer] = std::move(parts);
  }
  return made;
}

/// Compares the parts of each factor of an array with those that it was `seen` in before.
static bool agrees(const Binding& binding, const BoundArray& array, const Sharding& sharding,
                   const Shape& shape, std::map<int, FactorParts>& seen) {
  for (size_t d = 0; d < array.size(); ++d) {
    if (array[d].empty()) continue;
    const auto dim = static_cast<int>(d);
    for (auto& [factor, parts] : factor_parts(binding, sharding, dim, shape[dim], array[d])) {
      const bool is_one = binding.factor(factor).size == 1 && shape[dim] != 1;
      if (binding.factor(factor).fetched || is_one) continue;
      if (seen.try_emplace(factor, parts).first->second != parts) return false;
    }
  }
  return true;
}

bool parts_agree(const ChoiceQuery& query, const Choice& choice) {
  const auto is_sized = [](const Sharding& sharding) { return sharding.has_sizes(); };
  if (std::ranges::none_of(choice.operands, is_sized) &&
      std::ranges::none_of(choice.results, is_sized)) {
    return true;
  }
  const Binding& binding = query.binding;
  std::map<int, FactorParts> seen;
  for (size_t i = 0; i < choice.operands.size(); ++i) {
    const Shape& shape = query.operands[i]->shape;
    if (!agrees(binding, binding.operands[i], choice.operands[i], shape, seen)) return false;
  }
  for (size_t i = 0; i < choice.results.size(); ++i) {
    const Shape& shape = binding.result_shapes[i];
    if (!agrees(binding, binding.results[i], choice.results[i], shape, seen)) return false;
  }
  return true;
}

}  // namespace weft

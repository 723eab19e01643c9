// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "mesh/grid.h"
#include "ops/engine/choose.h"

namespace weft {

using BoundArray = Binding::BoundArray;
using FactorParts = std::vector<std::vector<int64_t>>;

/// The sizes of a dim's parts, in elements of the factor.
static FactorParts factor_parts(const Sharding& sharding, int d, int64_t size,
                                const Factor& factor) {
  FactorParts parts = sizes_of_parts(sharding.pattern(), sharding.body()->grid->sizes(), d, size);
  const int64_t inner = std::max<int64_t>(1, size / std::max<int64_t>(1, factor.size));
  for (auto& level : parts) {
    for (int64_t& part : level) part /= inner;
  }
  // A cut by an axis of one device is none.
  std::erase_if(parts, [](const auto& level) { return level.size() == 1; });
  return parts;
}

/// Compares the parts of each factor of an array with those that it was `seen` in before.
static bool agrees(const Binding& binding, const BoundArray& array, const Sharding& sharding,
                   const Shape& shape, std::map<int, FactorParts>& seen) {
  for (size_t d = 0; d < array.size(); ++d) {
    if (array[d].empty()) continue;
    // The factor that a cut of merged dims passes to: the first that is longer than 1.
    const auto found =
        std::ranges::find_if(array[d], [&](int f) { return binding.factor(f).size != 1; });
    const int factor = found == array[d].end() ? array[d].front() : *found;
    if (binding.factor(factor).fetched) continue;
    const auto dim = static_cast<int>(d);
    const FactorParts parts = factor_parts(sharding, dim, shape[dim], binding.factor(factor));
    if (seen.try_emplace(factor, parts).first->second != parts) return false;
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

// SPDX-License-Identifier: Apache-2.0
#include "weft/expert_parallel.h"

#include <set>
#include <string_view>
#include <vector>

#include "weft/error.h"
#include "weft/moe.h"

namespace weft {

static std::set<const Parameter*> parameters_of_experts(const std::vector<Module*>& modules) {
  std::set<const Parameter*> found;
  for (Module* root : modules) {
    for (const auto& [path, module] : root->named_modules()) {
      if (!dynamic_cast<const Experts*>(module)) continue;
      for (const auto& [name, parameter] : module->own_parameters()) found.insert(parameter.get());
    }
  }
  return found;
}

FullyShardOptions with_experts(FullyShardOptions options, const std::vector<Module*>& modules,
                               const DeviceMesh& data, const std::string& ep) {
  const int at = data.axis(ep);
  std::vector<std::string_view> others;
  for (int axis = 0; axis < data.ndim(); ++axis) {
    if (axis != at) others.emplace_back(data.axis_name(axis));
  }
  if (others.empty()) {
    fail("fully_shard: mesh is ", data, ", expected an axis besides ", ep,
         " for the parameters of experts; it may have one rank");
  }
  std::vector<StrategyRow>& rows = options.strategy.rows;
  if (rows.size() > 1 && rows.size() != others.size()) {
    fail("fully_shard: strategy ", options.strategy.name, " has ", rows.size(),
         " rows, expected one, or ", others.size(), ", one for each axis but ", ep);
  }
  const Strategy strategy = options.strategy;
  if (rows.size() > 1) rows.insert(rows.begin() + at, strategy.rows.back());
  options.shard_placement_fn = [experts = parameters_of_experts(modules), mesh = data.view(others),
                                strategy,
                                given = options.shard_placement_fn](const NamedParameter& named) {
    if (!experts.contains(named.parameter.get())) return given ? given(named) : ShardPlacement{};
    return ShardPlacement{.mesh = mesh, .strategy = strategy};
  };
  return options;
}

}  // namespace weft

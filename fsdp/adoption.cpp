// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <range/v3/view/enumerate.hpp>
#include <ranges>

#include "fsdp/fsdp_state.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/hash.h"
#include "weft/extend/module_sharder.h"
#include "weft/ops/factories.h"
#include "weft/warnings.h"

namespace weft::fsdp {

static bool contains(const FsdpStates& states, const std::shared_ptr<FsdpState>& state) {
  return std::ranges::find(states, state) != states.end();
}

FsdpStates states_below(Module& module) {
  FsdpStates states;
  const auto all = module.named_modules();
  for (const auto& [name, child] : all) {
    if (child == &module) continue;
    for (auto& state : ModuleSharder::attachments<FsdpState>(*child)) {
      if (contains(states, state)) continue;
      std::vector<std::string> names;
      for (const Module* member : state->modules()) {
        const auto found =
            std::ranges::find_if(all, [&](const auto& other) { return other.second == member; });
        names.push_back(found == all.end() ? "" : found->first);
      }
      state->group()->set_names(std::move(names));
      states.push_back(std::move(state));
    }
  }
  return states;
}

FsdpStates states_from(const std::vector<Module*>& modules) {
  FsdpStates states;
  for (Module* module : modules) {
    for (auto& state : states_below(*module)) {
      if (!contains(states, state)) states.push_back(std::move(state));
    }
  }
  for (auto& state : ModuleSharder::attachments<FsdpState>(*modules[0])) {
    std::erase(states, state);
    state->group()->set_names(std::vector<std::string>(modules.size()));
    states.push_back(std::move(state));
  }
  return states;
}

static bool is_below(const std::string& name, const std::string& module) {
  return name.size() > module.size() && name.starts_with(module) && name[module.size()] == '.';
}

/// True if a module below ignores the parameter, or its group has it and it has no name outside
/// the modules of that group.
static bool stays_below(const FsdpStates& below, const NamedParameter& named) {
  return std::ranges::any_of(below, [&](const auto& state) {
    const ParamGroup& owner = *state->group();
    const auto is_within = [&](const std::string& name) {
      return std::ranges::any_of(owner.names(),
                                 [&](const std::string& module) { return is_below(name, module); });
    };
    return owner.ignores(*named.parameter) ||
           (owner.owns(*named.parameter) && std::ranges::all_of(named.names, is_within));
  });
}

/// Moves a parameter that a group below shares with something outside that group to the common
/// ancestor, which is the module that is sharded now.
static void adopt(const FsdpStates& below, const NamedParameter& named, size_t member,
                  FsdpState& state) {
  bool moved = false;
  for (const auto& other : below) {
    if (!other->group()->owns(*named.parameter)) continue;
    other->group()->disown(*named.parameter);
    moved = true;
  }
  if (moved && state.group()->is_first_rank()) {
    warn("fully_shard: parameter ", named.names.front(), " is also ", named.names.back(),
         ", so it is sharded with their common ancestor");
  }
  state.adopt(named, member);
}

/// Replicates an ignored parameter; the tape reduces its gradient.
static void replicate(Parameter& parameter, const DeviceMesh& mesh, const MixedPrecision& dtypes) {
  const bool floats = is_floating(parameter.dtype());
  const DType dtype = floats ? dtypes.buffers.value_or(parameter.dtype()) : parameter.dtype();
  const NoGrad no_grad;
  if (!parameter.is_materialized()) {
    const Sharding before = parameter.value().sharding();
    ModuleSharder::lay_out(
        parameter,
        empty(parameter.shape(), {dtype, meta, before ? before : Sharding(mesh.root(), {})}));
    return;
  }
  Tensor value = parameter.value().detach();
  if (!value.is_sharded()) value = distribute(value, mesh.root(), {});
  ModuleSharder::lay_out(parameter, value.to(dtype).detach());
}

namespace {

/// A parameter of module `member`, and the state that gets it; without one it is ignored.
struct Assigned {
  NamedParameter named;
  size_t member;
  std::shared_ptr<FsdpState> state;
  FsdpStates below;
};

}  // namespace

/// The state whose mesh and strategy the options name for a parameter; by default the last one.
static const std::shared_ptr<FsdpState>& state_for(const FsdpStates& states,
                                                   const FullyShardOptions& options,
                                                   const NamedParameter& named) {
  if (states.size() == 1) return states.back();
  const ShardPlacement placement = options.shard_placement_fn(named);
  const DeviceMesh mesh = placement.mesh ? placement.mesh : states.back()->group()->mesh();
  const Strategy strategy = placement.strategy.value_or(options.strategy);
  for (const auto& state : states) {
    if (state->is_for(mesh, strategy)) return state;
  }
  return states.back();
}

static std::vector<Assigned> assignment(const FsdpStates& states,
                                        const std::vector<Module*>& modules, bool again) {
  const FullyShardOptions& options = states.back()->group()->options();
  std::vector<std::string> unknown = options.ignored;
  std::vector<Assigned> all;
  const auto is_known = [&](const NamedParameter& named) {
    return std::ranges::any_of(
        all, [&](const Assigned& other) { return other.named.parameter == named.parameter; });
  };
  for (const auto& [member, module] : ranges::views::enumerate(modules)) {
    const FsdpStates below = states_below(*module);
    for (NamedParameter& named : module->named_parameters()) {
      if (is_known(named)) continue;
      auto found = std::find_first_of(unknown.begin(), unknown.end(), named.names.begin(),
                                      named.names.end());
      const auto& listed = options.ignored_params;
      const bool ignores =
          found != unknown.end() || std::ranges::find(listed, named.parameter) != listed.end();
      if (found != unknown.end()) unknown.erase(found);
      if (!ignores && stays_below(below, named)) continue;
      std::shared_ptr<FsdpState> state;
      if (!ignores) {
        state = state_for(states, options, named);
        state->group()->check(named, member);
      }
      all.push_back({std::move(named), member, std::move(state), below});
    }
  }
  if (!unknown.empty() && !again) {
    fail("fully_shard: ignored parameter ", in_quotes(unknown[0]), " does not exist");
  }
  return all;
}

void adopt_parameters(const FsdpStates& states, const std::vector<Module*>& modules, bool again) {
  ParamGroup& last = *states.back()->group();
  for (const Assigned& assigned : assignment(states, modules, again)) {
    const ParameterPtr& parameter = assigned.named.parameter;
    if (assigned.state) {
      adopt(assigned.below, assigned.named, assigned.member, *assigned.state);
    } else if (!last.ignores(*parameter)) {
      replicate(*parameter, last.mesh(), last.options().precision);
      last.ignore(parameter);
    }
  }
}

std::vector<ParamGroup*> adopt_again(const FsdpStates& before, const FsdpStates& states) {
  ParamGroup::Layouts layouts;
  for (const auto& state : before) state->group()->add_layouts(layouts);
  for (const auto& state : states) state->group()->begin_readopting(layouts);
  try {
    // Modules below come after those that contain them, the outermost at the end.
    const std::vector<Module*> outermost = states.back()->modules();
    FsdpStates done;
    for (const auto& state : std::views::reverse(states)) {
      const std::vector<Module*> modules = state->modules();
      if (modules == outermost || contains(done, state)) continue;
      const FsdpStates own = ModuleSharder::attachments<FsdpState>(*modules[0]);
      adopt_parameters(own, modules, true);
      done.insert(done.end(), own.begin(), own.end());
    }
    adopt_parameters(ModuleSharder::attachments<FsdpState>(*outermost[0]), outermost, true);
    states_from(outermost);
    for (const auto& state : states) state->group()->check_readopting();
  } catch (...) {
    for (const auto& state : states) state->group()->cancel_readopting();
    throw;
  }
  std::vector<ParamGroup*> changed;
  for (const auto& state : states) {
    if (state->group()->end_readopting()) changed.push_back(state->group().get());
  }
  return changed;
}

static void add_structure(const Module& module, uint64_t& sum) {
  const auto add = [&](const void* pointer) {
    sum = mixed(sum, reinterpret_cast<uintptr_t>(pointer));
  };
  for (const auto& [name, parameter] : module.own_parameters()) add(parameter.get());
  for (const auto& [name, child] : module.children()) {
    add(child.get());
    add_structure(*child, sum);
  }
  // Ends the children: a module that moves to the next one up changes the number.
  add(nullptr);
}

uint64_t structure_of(const std::vector<Module*>& modules) {
  uint64_t sum = 1;
  for (const Module* module : modules) add_structure(*module, sum);
  return sum;
}

}  // namespace weft::fsdp

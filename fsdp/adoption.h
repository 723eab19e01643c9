// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "fsdp/fsdp_state.h"
#include "weft/module.h"

namespace weft::fsdp {

/// Returns the states of the modules below `module`, in the modules' order, and names their groups
/// by their paths in it.
FsdpStates states_below(Module& module);

/// Returns the states below these modules, then their own.
FsdpStates states_from(const std::vector<Module*>& modules);

/// Gives `states`, all of the same modules, the parameters that no group below has, after checking
/// them all. With `again` the states had parameters before.
void adopt_parameters(const FsdpStates& states, const std::vector<Module*>& modules, bool again);

/// Distributes the parameters among the groups again. Returns the groups whose parameters changed.
std::vector<ParamGroup*> adopt_again(const FsdpStates& before, const FsdpStates& states);

/// A number for the modules and parameters below these modules.
uint64_t structure_of(const std::vector<Module*>& modules);

}  // namespace weft::fsdp

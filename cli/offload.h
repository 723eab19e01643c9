// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/device.h"
#include "weft/tier.h"

namespace CLI {
class App;
}

namespace weft::cli {

/// Adds --offload, whose items land in `items`.
void add_offload_flag(CLI::App& command, std::vector<std::string>& items);
/// Where "parameters", "gradients" or "state" rest. std::invalid_argument for items that --offload
/// does not take.
Tier tier_of(const std::vector<std::string>& items, std::string_view what);
/// Checks all items for ranks that compute on `device`.
void check_offload(const std::vector<std::string>& items, Device device);

}  // namespace weft::cli

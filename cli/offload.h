// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/device.h"
#include "weft/tier.h"

namespace weft::cli {

/// The policy of block `index` under --activation-checkpointing `choice`.
std::string_view policy_of(std::string_view choice, size_t index);

/// Bytes after "budget=", or nothing for another choice. std::invalid_argument for a choice that
/// --activation-checkpointing does not take.
std::optional<int64_t> budget_of(const std::string& choice);
/// Bytes such as "2GiB", "1.5GB" or "4096"; std::invalid_argument, which begins with `flag`.
int64_t bytes_from(std::string_view flag, const std::string& text);

/// Where "parameters", "gradients" or "state" rest. std::invalid_argument for items that --offload
/// does not take.
Tier tier_of(const std::vector<std::string>& items, std::string_view what);
/// Checks all items for ranks that compute on `device`.
void check_offload(const std::vector<std::string>& items, Device device);

}  // namespace weft::cli

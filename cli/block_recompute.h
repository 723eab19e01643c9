// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "weft/module.h"
#include "weft/tier.h"

namespace weft::cli {

/// The tensors that a block saves for backward: its inputs; results of attention, or of all matrix
/// products too; or all that its gradient needs.
inline constexpr std::array<std::string_view, 4> kBlockPolicies = {"full", "attention", "op",
                                                                   "none"};

/// Behind a policy: what it saves rests in a tier.
inline constexpr std::string_view kOffloadsSaved = "+offload";

/// Sets what a block saves, by one of these names; what an offloading policy saves rests in `tier`.
void set_policy(Module& block, std::string_view policy, const Tier& tier);
/// The policy of block `index` under --activation-checkpointing `choice`.
std::string_view policy_of(std::string_view choice, size_t index);

/// Bytes after "budget=", or nothing for another choice. std::invalid_argument for a choice that
/// --activation-checkpointing does not take.
std::optional<int64_t> budget_of(const std::string& choice);
/// Bytes such as "2GiB", "1.5GB" or "4096"; std::invalid_argument, which begins with `flag`.
int64_t bytes_from(std::string_view flag, const std::string& text);

}  // namespace weft::cli

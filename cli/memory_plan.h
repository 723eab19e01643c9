// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "cli/parallel_transformer.h"
#include "cli/step_cost.h"

namespace weft::cli {

/// The policy of block `index` under --activation-checkpointing `choice`.
std::string_view policy_of(std::string_view choice, size_t index);

/// Bytes after "budget=", or nothing for another choice. std::invalid_argument for a choice that
/// --activation-checkpointing does not take.
std::optional<int64_t> budget_of(const std::string& choice);
/// Bytes such as "2GiB", "1.5GB" or "4096"; std::invalid_argument, which begins with `flag`.
int64_t bytes_from(std::string_view flag, const std::string& text);

/// True if the options leave a choice to `planned`: --memory or a budget of recomputation.
bool is_planned(const ParallelOptions& options);

/// A choice whose predicted peak fits, as options.
struct MemoryPlan : weft::MemoryPlan {
  ParallelOptions options;
  /// The load of experts for which the peak is a bound, in words; empty where it does not matter.
  std::string load;
};

/// Chooses what blocks save for backward, and with --memory whether parameters stay gathered, how
/// many are gathered early and, with --offload auto=disk:DIR, what rests on disk: the choice of
/// least predicted time that fits on rank 0, which holds the largest parts. Ranks that call it with
/// the same arguments choose alike. std::invalid_argument where nothing fits.
MemoryPlan planned(const TransformerConfig& config, const ParallelOptions& options, int ranks,
                   int ranks_per_host, const Machine& machine);

}  // namespace weft::cli

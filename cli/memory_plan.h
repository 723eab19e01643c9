// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/parallel_transformer.h"
#include "cli/step_cost.h"

namespace weft::cli {

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

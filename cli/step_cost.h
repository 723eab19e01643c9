// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "cli/parallel_transformer.h"
#include "weft/memory_budget.h"

namespace weft::cli {

/// Predicts a step of one rank; `world` may be a fake one. Measures models of few layers on `meta`
/// and extrapolates, because each further repetition of the pattern of layers adds the same.
/// `config` has the layers of a stage, of which only `part` is computed.
StepCost step_cost(const Communicator& world, const TransformerConfig& config,
                   const ParallelOptions& options, const StagePart& part = {});

/// Prints what is gathered, computed and freed when, one line an action. A model of more than 128
/// layers is shown as one of 128, as the first line states.
std::string step_schedule(const Communicator& world, TransformerConfig config,
                          const ParallelOptions& options);

/// The time that `weft estimate` predicts for a step of rank 0 on such machines. Leaves the calling
/// rank's random numbers as they are.
StepSeconds predicted_step(const Machine& machine, const TransformerConfig& config,
                           const ParallelOptions& options, int ranks, int ranks_per_host);

/// Bytes after "budget=", or nothing for another choice. std::invalid_argument for a choice that
/// --activation-checkpointing does not take.
std::optional<int64_t> budget_of(const std::string& choice);
/// Bytes such as "2GiB", "1.5GB" or "4096"; std::invalid_argument, which begins with `flag`.
int64_t bytes_from(std::string_view flag, const std::string& text);

/// True if the options leave a choice to `planned`: --memory or a budget of recomputation.
bool is_planned(const ParallelOptions& options);

/// Chooses what blocks save for backward, and with --memory whether parameters stay gathered, how
/// many are gathered early and, with --offload auto=disk:DIR, what rests on disk: the choice of
/// least predicted time that fits on rank 0, which holds the largest parts. Ranks that call it with
/// the same arguments choose alike. std::invalid_argument where nothing fits.
MemoryPlan planned(const TransformerConfig& config, const ParallelOptions& options, int ranks,
                   int ranks_per_host, const Machine& machine);

}  // namespace weft::cli

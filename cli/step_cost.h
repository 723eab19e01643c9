// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "cli/parallel_transformer.h"
#include "weft/memory_budget.h"

namespace weft::cli {

/// "this": measured now, for a second, with `ranks` ranks as threads of this process; "h100",
/// "h200", "a100": what products and links reach in practice. `dtype` is "f32" or "bf16".
/// std::invalid_argument for any other name.
Machine machine_named(const std::string& name, const std::string& dtype, int ranks);

/// The one above that has such GPUs, by a GPU's name; nothing where none has.
std::optional<Machine> machine_of_device(std::string_view device_name, const std::string& dtype);

/// Operations that a device of that name does in a second at most, by its maker's data sheet: dense
/// products computed in 8 bits (--float8), bf16 or f32, TF32 off. Nothing for a device that no
/// table here has.
std::optional<double> peak_operations(std::string_view device_name, const ParallelOptions& options);
/// Counts as training_operations_a_token does, but of attention only what a mask and windows leave:
/// the operations that a step needs, which MFU counts.
double needed_operations_a_token(const TransformerConfig& config, int64_t sequence);
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

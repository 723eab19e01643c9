// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <vector>

#include "cli/machine.h"
#include "cli/parallel_transformer.h"
#include "weft/extend/op_log.h"
#include "weft/extend/split_products.h"
#include "weft/fsdp.h"
#include "weft/storage.h"

namespace weft::cli {

/// Bytes that a rank receives over axes, in a step.
struct AxisCost {
  std::string axes;
  /// The ranks that differ along the axes are of several hosts.
  bool crosses_hosts = false;
  /// "parameters and gradients" or "activations".
  const char* of = "";
  int64_t bytes = 0;
  int64_t collectives = 0;
};

/// Movements in parts that are alike, and their number in a step.
struct SplitCost {
  SplitMovement movement;
  int64_t calls = 0;
};

/// Cost of one training step of one rank, computed without allocation or communication.
struct StepCost {
  /// Most bytes at once, by purpose.
  std::array<int64_t, kPurposes> memory = {};
  std::vector<AxisCost> traffic;
  std::vector<OpWork> work;
  /// Activations that move while products of other parts are computed; also part of `traffic`.
  std::vector<SplitCost> splits;
  FullyShardBytes sharding;

  /// For a GPU, whose products take no copies of their operands.
  void leave_out_scratch() { memory[static_cast<size_t>(Purpose::other)] = 0; }
  int64_t peak_bytes() const;
  double operations() const;
};

/// Predicts a step of one rank; `world` may be a fake one. Measures models of few layers on `meta`
/// and extrapolates, because each further pair of layers adds the same.
StepCost step_cost(const Communicator& world, const TransformerConfig& config,
                   const ParallelOptions& options, int ranks_per_host);

/// Prints what is gathered, computed and freed when, one line an action. A model of more than 128
/// layers is shown as one of 128, as the first line states.
std::string step_schedule(const Communicator& world, TransformerConfig config,
                          const ParallelOptions& options);

/// Seconds of a step: of computing, of communication by itself, and of both as they overlap.
struct StepSeconds {
  double compute = 0;
  double communication = 0;
  double total = 0;
  /// Of communication in parts, what products of other parts hide.
  double hidden_by_parts = 0;
};
StepSeconds step_seconds(const StepCost& cost, const Machine& machine);

}  // namespace weft::cli

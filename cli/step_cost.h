// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <vector>

#include "cli/machine.h"
#include "cli/parallel_transformer.h"
#include "weft/extend/op_log.h"
#include "weft/fsdp.h"
#include "weft/storage.h"

namespace weft::cli {

/// Bytes that a rank's experts have and receive, in all layers.
struct ExpertBytes {
  /// Parameters at rest.
  int64_t parameters = 0;
  /// Tokens that a step's forward brings to experts and back, and all that backward moves for them.
  int64_t dispatch = 0, combine = 0, backward = 0;
};

/// Bytes that a rank receives over axes, in a step.
struct AxisCost {
  std::string axes;
  /// The ranks that differ along the axes are of several hosts.
  bool crosses_hosts = false;
  /// "parameters and gradients", "activations" or "tokens of experts".
  const char* of = "";
  int64_t bytes = 0;
  int64_t collectives = 0;
};

/// Cost of one training step of one rank, computed without allocation or communication.
struct StepCost {
  /// Most bytes at once, by purpose.
  std::array<int64_t, kPurposes> memory = {};
  std::vector<AxisCost> traffic;
  std::vector<OpWork> work;
  FullyShardBytes sharding;
  ExpertBytes experts;
  /// Operations of shared experts in forward, which GPUs run while tokens are dispatched.
  double shared_operations = 0;

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
};
StepSeconds step_seconds(const StepCost& cost, const Machine& machine);

}  // namespace weft::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/parallel_transformer.h"

namespace weft::cli {

/// Options of `weft estimate`.
struct EstimateOptions {
  ParallelOptions parallel;
  int world = 0;
  int rank = 0;
  int ranks_per_host = 8;
  std::string machine = "this";
  /// Strategies; empty: that of `parallel` alone, in detail.
  std::vector<std::string> compare = {};
  bool json = false;
  bool schedule = false;
};

/// Adds the subcommand `estimate` with its flags, which land in `options`.
CLI::App* add_estimate(CLI::App& program, EstimateOptions& options);

/// Checks what the flags say together, and prints what a training step would take.
void estimate(EstimateOptions options);

}  // namespace weft::cli

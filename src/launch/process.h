// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "weft/context.h"
#include "weft/ranks.h"

namespace weft {

/// How this process was started: alone, or as one rank of several.
struct Launched {
  /// "weft run", "mpirun", "torchrun", "srun"; empty when alone.
  std::string by = {};
  int rank = 0;
  int size = 1;
  /// Within this host; `local_size` is 0 when unknown.
  int local_rank = 0;
  int local_size = 1;
  /// Equal for all processes of a job.
  std::string job = {};
};

/// Reads the variables that weft run, mpirun (Open MPI), torchrun and srun set, in this order.
/// Throws std::invalid_argument naming a variable that is missing or not a number.
Launched launched_from_environment();

/// Throws std::invalid_argument naming `what` for invalid options.
void check_options(const char* what, const RunOptions& options);

/// The number of kernel threads for each of `ranks` ranks that share this machine's cores.
int threads_of_rank(int ranks, const RunOptions& options);

/// Makes the calling thread and its context those of a rank.
void become_rank(Context& context, int threads, const RunOptions& options);

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace weft {

/// How this process was started: alone, or as one rank of several.
struct Launched {
  /// "weft run", "mpirun", "torchrun", "srun"; empty when alone.
  std::string by = {};
  int rank = 0;
  int size = 1;
  /// Among the ranks of this host; a local size of 0 is not known.
  int local_rank = 0;
  int local_size = 1;
  /// Equal for the processes of a job.
  std::string job = {};
};

/// From the variables that weft run, mpirun (Open MPI), torchrun and srun set, in this order.
/// std::invalid_argument naming a variable that is missing or no number.
Launched launched_from_environment();

/// What bits depend on: version, compiler, instruction set and libraries of this build.
std::string build_in_words();

}  // namespace weft

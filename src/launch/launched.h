// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

namespace weft {

/// The start of this process: alone, or as one rank of several.
struct Launched {
  /// "weft run", "mpirun", "mpiexec", "torchrun", "srun"; empty when alone.
  std::string by = {};
  int rank = 0;
  int size = 1;
  /// The rank within this host; `local_size` is 0 when unknown.
  int local_rank = 0;
  int local_size = 1;
  /// Equal for all processes of a job; empty where the launcher has no name for it.
  std::string job = {};
  /// "host:port", or "host:port/name", at which rank 0 meets the ranks of other hosts over TCP;
  /// empty where MPI connects them.
  std::string rendezvous = {};
  /// How long another host may be silent; 0: any time.
  std::chrono::seconds tcp_timeout{30};
};

/// Reads the variables that weft run, mpirun (Open MPI), mpiexec (MPICH), torchrun and srun set, in
/// this order, and WEFT_RENDEZVOUS, which is MASTER_ADDR:MASTER_PORT under torchrun. Throws
/// std::invalid_argument naming a variable that is missing or not a number.
Launched launched_from_environment();

}  // namespace weft

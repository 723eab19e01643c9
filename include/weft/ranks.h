// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "weft/communicator.h"
#include "weft/export.h"

namespace weft {

/// Options of running ranks.
struct RunOptions {
  /// Every wait for another rank ends with a CommError after this long; a call may wait twice.
  std::chrono::milliseconds deadline = std::chrono::minutes(10);
  /// Threads of each rank's kernels; 0 shares the machine's cores evenly, at least one each.
  int threads_per_rank = 0;
  uint64_t seed = 0;
  /// See Context::checks_equality.
  std::optional<bool> checks_equality = {};
};

/// The most threads of `run_ranks` and processes of `weft run`. At most 95 processes of one host
/// can `connect`.
inline constexpr int kMostLocalRanks = 1024;

/// Runs `body` on `ranks` (1 to kMostLocalRanks) threads of this process, each with its own
/// Context, over one communicator. Returns when all have ended; rethrows the first cause
/// when one threw. A rank that neither ends nor communicates after the others have failed is named
/// on stderr, and the process ends with exit code 1: a thread cannot be stopped.
WEFT_API void run_ranks(int ranks, const std::function<void(Communicator)>& body,
                        const RunOptions& options = {});

/// Ranks of the job that this process is one rank of: started by `weft run`, mpirun, torchrun or
/// srun. 1 for a process that is alone. std::invalid_argument when their variables make no sense.
WEFT_API int launched_ranks();
/// "weft run", "mpirun", "torchrun" or "srun"; empty for a process that is alone.
WEFT_API std::string launched_by();

/// Describes the build as far as the bits of results depend on it: version, compiler, instruction
/// set and libraries.
WEFT_API std::string build_in_words();

/// The rank among those of its job on this host, and how many they are: 0 of 1 when it is alone; a
/// size of 0 where the launcher does not say.
struct LocalRank {
  int rank = 0;
  int size = 1;
};
WEFT_API LocalRank launched_local_rank();

/// The communicator of all ranks of the job, this process being one of them; of one rank when it is
/// alone. The calling thread becomes the rank: it gets its threads, seed and deadline from
/// `options`, and the process takes memory for tensors where the other ranks of its host read it.
/// When called again it returns the same; the deadline stays. std::runtime_error naming the ranks
/// that did not come within the deadline, and a rank that is another build. Where ranks are on
/// several hosts and MPI itself does not begin within the deadline, the process ends with a
/// sentence and exit code 1: MPI's start cannot be given up.
WEFT_API Communicator connect(const RunOptions& options = {});

/// Runs `body` on all ranks: on this process's rank of `connect` when it is one of a job, telling
/// the others how it ended, else on `ranks` threads as `run_ranks` does. One program for both.
/// std::invalid_argument when more than one rank is asked for and the job has another number.
WEFT_API void run_world(int ranks, const std::function<void(Communicator)>& body,
                        const RunOptions& options = {});

}  // namespace weft

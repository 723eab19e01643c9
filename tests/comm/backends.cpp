// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/backends.h"

#include "tests/comm/mpi_backend.h"
#include "tests/support/processes.h"

namespace weft {

static void run_on_threads(int ranks, const std::function<void(Communicator)>& body) {
  run_ranks(ranks, body, {.deadline = std::chrono::seconds(20), .threads_per_rank = 1});
}

static void run_on_processes(int ranks, const std::function<void(Communicator)>& body) {
  run_processes(ranks, body);
}

std::vector<Backend> all_backends() {
  if (mpirun_ranks() > 0) return {{"mpi", run_on_mpi}};
  if (!kForks) return {{"threads", run_on_threads}};
  return {{"threads", run_on_threads}, {"shared", run_on_processes}};
}

std::vector<int> all_sizes() {
  if (mpirun_ranks() > 0) return {mpirun_ranks()};
  return {1, 2, 3, 4, 8};
}

}  // namespace weft

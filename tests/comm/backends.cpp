// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/backends.h"

#include "tests/comm/mpi_backend.h"
#include "tests/comm/nccl_backend.h"
#include "tests/comm/tcp_backend.h"
#include "tests/support/processes.h"
#include "weft/ranks.h"

namespace weft {

static void run_on_threads(int ranks, const std::function<void(Communicator)>& body) {
  run_ranks(ranks, body, {.deadline = std::chrono::seconds(20), .threads_per_rank = 1});
}

static void run_on_processes(int ranks, const std::function<void(Communicator)>& body) {
  run_processes(ranks, body);
}

std::vector<Backend> backends_of_the_host() {
  if (mpirun_ranks() > 0) return {{"mpi", run_on_mpi}};
  if (runs_on_tcp()) return {{"tcp", run_on_tcp}};
  std::vector<Backend> backends{{"threads", run_on_threads}};
  if (kForks) backends.push_back({"shared", run_on_processes});
  return backends;
}

std::vector<Backend> all_backends() {
  std::vector<Backend> backends = backends_of_the_host();
  if (mpirun_ranks() == 0 && !runs_on_tcp() && has_emulated_nccl()) {
    backends.push_back({"nccl", run_on_nccl, false, 3});
    backends.push_back({"nccl_in_rank_order", run_on_nccl_in_rank_order, true, 3});
  }
  return backends;
}

std::vector<std::tuple<Backend, int>> all_cases() {
  std::vector<std::tuple<Backend, int>> cases;
  for (const Backend& backend : all_backends()) {
    for (const int ranks : all_sizes()) {
      if (ranks <= backend.most_ranks) cases.emplace_back(backend, ranks);
    }
  }
  return cases;
}

std::vector<int> all_sizes() {
  if (mpirun_ranks() > 0) return {mpirun_ranks()};
  return {1, 2, 3, 4, 8};
}

}  // namespace weft

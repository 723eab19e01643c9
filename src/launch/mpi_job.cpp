// SPDX-License-Identifier: Apache-2.0
#include "src/launch/mpi_job.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "src/comm/mpi/engine.h"
#include "weft/error.h"

namespace weft {

/// Identifies processes that can share memory: same kernel and same namespaces, so that each
/// container counts as a host.
static std::string host_in_words() {
  std::string words;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), words);
  for (const char* name : {"/proc/self/ns/net", "/proc/self/ns/pid"}) {
    std::error_code ignored;
    words += concat(' ', std::filesystem::read_symlink(name, ignored).string());
  }
  return words;
}

static void check_builds(const std::vector<std::string>& builds) {
  for (size_t rank = 1; rank < builds.size(); ++rank) {
    if (builds[rank] == builds[0]) continue;
    fail_call("connect", "rank ", rank,
              " is another build, which may compute other bits: ", builds[rank], "; rank 0 is ",
              builds[0]);
  }
}

MpiJob join_mpi_job(const Launched& launched, const std::string& build,
                    std::chrono::milliseconds deadline) {
  MpiJob job{MpiEngine::start(deadline), {}, {}};
  if (job.engine->size() != launched.size || job.engine->rank() != launched.rank) {
    fail_call("connect", launched.by, " says rank ", launched.rank, " of ", launched.size,
              ", but MPI says rank ", job.engine->rank(), " of ", job.engine->size(),
              "; ranks on several hosts are started by mpirun, or by srun --mpi=pmix");
  }
  check_builds(job.engine->all_gather(build, deadline));
  const std::vector<std::string> hosts = job.engine->all_gather(host_in_words(), deadline);
  std::vector<std::string> seen;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    const auto found = std::find(seen.begin(), seen.end(), hosts[rank]);
    job.hosts.push_back(static_cast<int>(found - seen.begin()));
    if (found == seen.end()) seen.push_back(hosts[rank]);
  }
  for (int rank = 0; rank < launched.size; ++rank) {
    const auto own = static_cast<size_t>(launched.rank);
    if (job.hosts[static_cast<size_t>(rank)] == job.hosts[own]) job.here.push_back(rank);
  }
  return job;
}

}  // namespace weft

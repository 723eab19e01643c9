// SPDX-License-Identifier: Apache-2.0
#include "src/launch/launched.h"

#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <system_error>

#include "weft/error.h"

namespace weft {

static std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

static int number_in_variable(const char* name) {
  const std::string text = variable(name);
  int number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (text.empty() || error != std::errc() || stop != end || number < 0) {
    fail("connect: the environment variable ", name, " is ", in_quotes(text),
         ", expected a number of at least 0");
  }
  return number;
}

static constexpr int kMostRanks = 1 << 20;

/// Reads the variables of these names; `local_size` may be null.
static Launched read(const char* by, const char* rank, const char* size, const char* local_rank,
                     const char* local_size) {
  const Launched launched{by, number_in_variable(rank), number_in_variable(size),
                          number_in_variable(local_rank),
                          local_size ? number_in_variable(local_size) : 0};
  // Memory is taken for each rank before the others are found.
  if (launched.size > kMostRanks) {
    fail("connect: ", size, " is ", launched.size, ", expected at most ", kMostRanks);
  }
  const bool fits = launched.rank < launched.size && launched.local_rank <= launched.rank &&
                    launched.local_size <= launched.size;
  if (!fits) {
    fail("connect: ", rank, " is ", launched.rank, ", ", size, " is ", launched.size, ", ",
         local_rank, " is ", launched.local_rank, " and the ranks of this host are ",
         launched.local_size, ", expected numbers of one job");
  }
  return launched;
}

static bool is_set(const char* name) { return std::getenv(name) != nullptr; }

/// With half a set of variables, each process would become a separate world.
static void check_set(std::initializer_list<const char*> names) {
  const char* present = nullptr;
  const char* absent = nullptr;
  for (const char* name : names) (is_set(name) ? present : absent) = name;
  if (present && absent) {
    fail("connect: the environment variable ", present, " is set and ", absent,
         " is not, expected both");
  }
}

/// The rendezvous of torchrun's variables; empty where they lack a host.
static std::string rendezvous_of_torchrun() {
  if (!is_set("MASTER_ADDR")) return {};
  int port = number_in_variable("MASTER_PORT");
  // The agent of torchrun itself listens at that port then.
  if (variable("TORCHELASTIC_USE_AGENT_STORE") == "True") ++port;
  const std::string host = variable("MASTER_ADDR");
  return host.find(':') == host.npos ? concat(host, ':', port) : concat('[', host, "]:", port);
}

Launched launched_from_environment() {
  Launched launched;
  check_set({"WEFT_RANK", "WEFT_WORLD_SIZE", "WEFT_LOCAL_RANK", "WEFT_LOCAL_WORLD_SIZE"});
  if (is_set("WEFT_WORLD_SIZE")) {
    launched = read("weft run", "WEFT_RANK", "WEFT_WORLD_SIZE", "WEFT_LOCAL_RANK",
                    "WEFT_LOCAL_WORLD_SIZE");
    launched.job = variable("WEFT_JOB");
  } else if (is_set("OMPI_COMM_WORLD_SIZE")) {
    launched = read("mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
    launched.job = concat(variable("PMIX_NAMESPACE"), '-', variable("OMPI_MCA_ess_base_jobid"));
  } else if (is_set("MPI_LOCALNRANKS") && is_set("PMI_SIZE")) {
    launched = read("mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS");
  } else if (is_set("RANK") && is_set("WORLD_SIZE")) {
    check_set({"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT"});
    launched = read("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE");
    launched.job = concat(variable("TORCHELASTIC_RUN_ID"), '-', variable("MASTER_PORT"), '-',
                          variable("TORCHELASTIC_RESTART_COUNT"));
    launched.rendezvous = rendezvous_of_torchrun();
  } else if (is_set("SLURM_STEP_ID") && is_set("SLURM_STEP_NUM_TASKS")) {
    // Without srun, in a batch script, there is no step.
    launched = read("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr);
    if (variable("SLURM_STEP_NUM_NODES") == "1") launched.local_size = launched.size;
    launched.job = concat(variable("SLURM_JOB_ID"), '.', variable("SLURM_STEP_ID"));
  }
  if (is_set("WEFT_RENDEZVOUS")) launched.rendezvous = variable("WEFT_RENDEZVOUS");
  if (is_set("WEFT_TCP_TIMEOUT")) {
    launched.tcp_timeout = std::chrono::seconds(number_in_variable("WEFT_TCP_TIMEOUT"));
  }
  return launched.size > 1 ? launched : Launched();
}

}  // namespace weft

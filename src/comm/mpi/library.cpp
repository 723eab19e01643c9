// SPDX-License-Identifier: Apache-2.0
#include "src/comm/mpi/library.h"

#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "src/comm/world.h"

namespace weft {

constinit const LoadedLibrary kMpiLibrary(WEFT_MPI_FILE, WEFT_MPI_DIRECTORY, true);

/// Sets variables that Open MPI reads at startup, unless the user has set them.
static void set_knobs() {
  // With single copy, a receiver reads the sender's memory even after the sender has aborted.
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
  // The default is 4 KiB, which would split a short message in two.
  setenv("OMPI_MCA_btl_vader_eager_limit", "16384", 0);
  const char* local_ranks = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (local_ranks && std::atoi(local_ranks) > available_cores()) {
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  }
}

static void end_late_start(std::stop_token stop, std::chrono::milliseconds deadline) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, stop, deadline, [] { return false; });
  if (stop.stop_requested()) return;
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (!rank) rank = std::getenv("PMIX_RANK");
  end_process(concat("connect: MPI did not begin within ", deadline.count(), " ms on rank ",
                     rank ? rank : "(unknown)",
                     ": another rank did not come, or the hosts do not reach each other (mpirun "
                     "--mca btl_tcp_if_include NETWORK says by which network)"));
}

MpiSession::MpiSession(std::chrono::milliseconds deadline) {
  const std::jthread watch(end_late_start, deadline);
  int finalized = 0;
  check_mpi(MPI_Finalized(&finalized), "MPI_Finalized");
  if (finalized) fail_call("MPI_Finalized", "the program has finalised MPI already");
  int initialized = 0;
  int level = MPI_THREAD_SINGLE;
  check_mpi(MPI_Initialized(&initialized), "MPI_Initialized");
  if (initialized) {
    check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
    if (level < MPI_THREAD_MULTIPLE) {
      fail_call("MPI_Query_thread", "the program initialised MPI with thread level ", level,
                "; weft, whose thread calls MPI too, needs MPI_THREAD_MULTIPLE (",
                MPI_THREAD_MULTIPLE, ')');
    }
  } else {
    set_knobs();
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
    owns_mpi_ = true;
    if (level < MPI_THREAD_SERIALIZED) {
      fail_call("MPI_Init_thread", "this MPI gives thread level ", level,
                "; weft needs MPI_THREAD_SERIALIZED (", MPI_THREAD_SERIALIZED, ')');
    }
  }
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
}

int MpiSession::greatest_tag() const {
  int* tag = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(comm_, MPI_TAG_UB, &tag, &found), "MPI_Comm_get_attr");
  return found ? *tag : 32767;  // the standard's minimum
}

void MpiSession::end() {
  check_mpi(MPI_Comm_free(&comm_), "MPI_Comm_free");
  if (owns_mpi_) check_mpi(MPI_Finalize(), "MPI_Finalize");
}

}  // namespace weft

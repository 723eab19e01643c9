// SPDX-License-Identifier: Apache-2.0

// Ranks in a program that initialises and finalises MPI itself.

#include <pthread.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "src/comm/flight/record.h"
#include "src/comm/memory/memory_worlds.h"
#include "src/comm/mpi/library.h"
#include "src/comm/mpi/session.h"
#include "src/launch/connection.h"
#include "src/launch/run_ranks.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/file.h"
#include "weft/extend/mpi_handle.h"

namespace weft {

static Communicator connect_processes(const MpiLibrary& mpi, MpiHandle comm,
                                      const RunOptions& options) {
  int rank = 0, size = 0, is_inter = 0;
  mpi.check(mpi->describe(comm, &rank, &size, &is_inter), "MPI_Comm_size");
  if (is_inter) fail("connect: comm is an intercommunicator, expected an intracommunicator");
  if (size == 1) {
    const auto world = std::make_shared<ThreadsWorld>(1, options.deadline, end_process);
    return Communicator(world->transports()[0]);
  }
  auto session = std::make_unique<MpiSession>(mpi, comm, text_of_process(), options.deadline);
  const std::vector<int> ranks = ranks_in_first(*session);
  if (!ranks.empty()) {
    session->end();
    return Connection::first->world.subgroup(ranks, "world");
  }
  auto made = std::make_unique<Connection>();
  join_by_mpi(*made, std::move(session), options);
  const Communicator world = made->world;
  // It lasts as long as the process: tensors may outlive the program's communicators.
  if (made->heap) Connection::first = made.release();
  return world;
}

Communicator connect_mpi(MpiAbi abi, uintptr_t comm, const RunOptions& options) {
  check_options("connect", options);
  const MpiLibrary& mpi = MpiLibrary::of_program(abi);
  mpi.check_thread();
  if (comm == mpi->null_comm) return {};
  static std::once_flag once;
  std::call_once(once, [&] {
    open_standard_descriptors();
    pthread_atfork(nullptr, nullptr, forget_connections);
  });
  end_before_finalize(mpi);
  end_left_engines();
  Communicator world = connect_processes(mpi, comm, options);
  static_cast<void>(RankThread::Call(*world.transport()->rank_thread(), "connect"));
  static thread_local bool is_rank = false;
  if (std::exchange(is_rank, true)) return world;
  become_rank(Context::current(), options.threads_per_rank, options);
  Context::current().flight = new_flight_record(world.rank(), world.size(), false);
  return world;
}

Communicator connect_all_of_mpi(const RunOptions& options) {
  const MpiLibrary& mpi = MpiLibrary::of_job();
  return connect_mpi(mpi.abi(), mpi->world, options);
}

}  // namespace weft

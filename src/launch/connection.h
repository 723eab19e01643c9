// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/comm/memory/memory_worlds.h"
#include "src/comm/mpi/engine.h"
#include "src/comm/mpi/session.h"
#include "src/comm/world.h"
#include "src/device/shared_memory.h"
#include "weft/communicator.h"
#include "weft/ranks.h"

namespace weft {

/// Makes this process a rank. It lasts as long as the process: tensors may outlive `main`.
struct Connection {
  /// The first connection of this process to others, whose memory it shares; null before.
  static constinit inline Connection* first = nullptr;

  /// Equal on all its processes, and on those of no other connection.
  std::string id = {};
  Communicator world = {};
  std::unique_ptr<SharedHeap> heap = {};
  std::vector<std::shared_ptr<SharedMemory>> heaps = {};
  /// Set when MPI carries what the ranks exchange.
  std::shared_ptr<MpiEngine> mpi = {};
  /// Set when the ranks only met by MPI.
  std::unique_ptr<MpiSession> session = {};

  World& shared() const { return *world.transport()->world(); }
};

/// Makes the processes of this host see each other's memory; `here`: their ranks, of a world of
/// `size`, in which this process has `rank`.
std::shared_ptr<ProcessWorld> join_host(Connection& made, const std::string& job, int rank,
                                        int size, std::vector<int> here, const RunOptions& options);

/// The engine of a world. In a program that uses MPI itself it ends when all processes have
/// released it or finalise MPI.
std::shared_ptr<MpiEngine> new_engine(std::unique_ptr<MpiSession> session,
                                      std::shared_ptr<World> world);
/// Ends engines that all processes have released.
void end_left_engines();
/// Makes MPI_Finalize first end all worlds of the program's MPI.
void end_before_finalize(const MpiLibrary& mpi);

/// `connect` with all processes of the MPI that the program has initialised.
Communicator connect_all_of_mpi(const RunOptions& options);

/// Called in a child of this process, which is not a rank and has none of the shared memory.
void forget_connections();

/// The text with which this process enters an MpiSession.
std::string text_of_process();
/// Returns the ranks of the session's processes in the first connection of all of them, in order;
/// empty when they have no common one.
std::vector<int> ranks_in_first(const MpiSession& session);
/// Makes the world of the session's processes. Those of one host share memory, unless one of them
/// does so with others already. std::runtime_error when one runs another build.
void join_by_mpi(Connection& made, std::unique_ptr<MpiSession> session, const RunOptions& options);

}  // namespace weft

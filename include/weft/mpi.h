// SPDX-License-Identifier: Apache-2.0
#pragma once

// Serves programs that use MPI themselves; weft.h does not include this header.

#include <mpi.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "weft/communicator.h"
#include "weft/extend/mpi_abi.h"
#include "weft/extend/mpi_handle.h"
#include "weft/ranks.h"

namespace weft {

/// Makes the processes of `comm`, all of which call this, ranks of one communicator: rank r is
/// MPI's rank r. An empty Communicator for MPI_COMM_NULL. The program initialises MPI, at any
/// thread level, and finalises it, which ends the ranks; weft then changes no environment variable,
/// signal handler or OpenMP setting, but for a `threads_per_rank` that is given. weft sends on a
/// duplicate of `comm`. Below MPI_THREAD_MULTIPLE what is sent between hosts moves only while a
/// rank is in a call of weft or of MPI; below MPI_THREAD_SERIALIZED only the thread that
/// initialised MPI may call.
///
/// Processes of one host share memory from their first `connect` on. Later communicators of
/// processes that met then, such as halves of them, are groups of that world: they fail with it,
/// and its deadline stays. std::runtime_error when processes do not come within the deadline, when
/// one is another build, and when weft was built without the ABI of this MPI.
inline Communicator connect(MPI_Comm comm, const RunOptions& options = {}) {
#ifdef OPEN_MPI
  constexpr MpiAbi abi = MpiAbi::openmpi;
#else
  constexpr MpiAbi abi = std::is_same_v<MPI_Comm, int> ? MpiAbi::mpich : MpiAbi::standard;
#endif
  static_assert(sizeof comm <= sizeof(uintptr_t));
  uintptr_t handle = 0;
  std::memcpy(&handle, &comm, sizeof comm);
  return connect_mpi(abi, handle, options);
}

}  // namespace weft

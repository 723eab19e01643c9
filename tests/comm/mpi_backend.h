// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "weft/communicator.h"

namespace weft {

/// Returns how many processes mpirun started; 0 when not run by mpirun or built without MPI.
int mpirun_ranks();

/// Runs the body on this process's rank. All processes run the same cases in the same order.
void run_on_mpi(int ranks, const std::function<void(Communicator)>& body);

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "weft/communicator.h"

namespace weft {

/// How many processes mpirun started this program as; 0: it did not, or weft is built without MPI.
int mpirun_ranks();

/// Runs the body on this process's rank. All processes run the same cases in the same order.
void run_on_mpi(int ranks, const std::function<void(Communicator)>& body);

}  // namespace weft

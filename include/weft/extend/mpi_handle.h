// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "weft/communicator.h"
#include "weft/export.h"
#include "weft/extend/mpi_abi.h"
#include "weft/ranks.h"

namespace weft {

/// `connect` of weft/mpi.h for programs that have an MPI_Comm as a number, such as bindings of
/// other languages: `comm` holds MPI's handle in its first bytes, and zeros.
WEFT_API Communicator connect_mpi(MpiAbi abi, uintptr_t comm, const RunOptions& options = {});

}  // namespace weft

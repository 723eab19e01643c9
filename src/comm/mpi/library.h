// SPDX-License-Identifier: Apache-2.0
#pragma once

// MPI's own C++ interface was removed from the standard and does not compile without warnings.
#define OMPI_SKIP_MPICXX
#define MPICH_SKIP_MPICXX
#include <mpi.h>

#include "src/base/loaded_library.h"

namespace weft {

// The MPI functions that weft uses. The library is loaded when a job needs it.

extern const LoadedLibrary kMpiLibrary;

WEFT_LOADED(kMpiLibrary, MPI_Cancel);
WEFT_LOADED(kMpiLibrary, MPI_Comm_dup);
WEFT_LOADED(kMpiLibrary, MPI_Comm_free);
WEFT_LOADED(kMpiLibrary, MPI_Comm_get_attr);
WEFT_LOADED(kMpiLibrary, MPI_Comm_rank);
WEFT_LOADED(kMpiLibrary, MPI_Comm_set_errhandler);
WEFT_LOADED(kMpiLibrary, MPI_Comm_size);
WEFT_LOADED(kMpiLibrary, MPI_Error_string);
WEFT_LOADED(kMpiLibrary, MPI_Finalize);
WEFT_LOADED(kMpiLibrary, MPI_Finalized);
WEFT_LOADED(kMpiLibrary, MPI_Get_count);
WEFT_LOADED(kMpiLibrary, MPI_Init_thread);
WEFT_LOADED(kMpiLibrary, MPI_Initialized);
WEFT_LOADED(kMpiLibrary, MPI_Irecv);
WEFT_LOADED(kMpiLibrary, MPI_Isend);
WEFT_LOADED(kMpiLibrary, MPI_Query_thread);
WEFT_LOADED(kMpiLibrary, MPI_Test);
WEFT_LOADED(kMpiLibrary, MPI_Testsome);
WEFT_LOADED(kMpiLibrary, MPI_Wait);
#ifdef OPEN_MPI
WEFT_LOADED(kMpiLibrary, ompi_mpi_byte);
WEFT_LOADED(kMpiLibrary, ompi_mpi_comm_null);
WEFT_LOADED(kMpiLibrary, ompi_mpi_comm_world);
WEFT_LOADED(kMpiLibrary, ompi_mpi_errors_return);
WEFT_LOADED(kMpiLibrary, ompi_request_null);
#endif

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

// MPI's own C++ interface was removed from the standard and does not compile without warnings.
#define OMPI_SKIP_MPICXX
#define MPICH_SKIP_MPICXX
#include <mpi.h>

#include <chrono>

#include "src/base/loaded_library.h"
#include "weft/error.h"
#include "weft/export.h"

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

/// Throws std::runtime_error with the name of the call unless it succeeded.
inline void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) [[likely]]
    return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail_call(call, text);
}

/// This process in MPI, with a communicator of all processes that only weft uses.
class MpiSession : NotCopied {
 public:
  /// Initialises MPI unless the program has done so. Called by all processes. std::runtime_error
  /// when the program initialised it below MPI_THREAD_MULTIPLE, or has finalised it. MPI_Init waits
  /// for all processes of the job and cannot be cancelled: if it exceeds the deadline, this ends
  /// the process with a message.
  explicit MpiSession(std::chrono::milliseconds deadline);

  MPI_Comm comm() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  /// The greatest tag that MPI allows.
  int greatest_tag() const;
  /// Finalises MPI if this object initialised it. Called by all processes.
  void end();

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  bool owns_mpi_ = false;
};

}  // namespace weft

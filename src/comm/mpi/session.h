// SPDX-License-Identifier: Apache-2.0
#pragma once

// MPI's own C++ interface is long dead, and does not compile without warnings.
#define OMPI_SKIP_MPICXX
#define MPICH_SKIP_MPICXX
#include <mpi.h>

#include <chrono>

#include "weft/error.h"

namespace weft {

/// std::runtime_error naming the call unless MPI says that it succeeded.
inline void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) [[likely]]
    return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail_call(call, text);
}

/// This process in MPI: a communicator of all processes that is weft's alone.
class MpiSession {
 public:
  /// Initialises MPI unless the program has done so. Called by all processes. std::runtime_error
  /// when the program did so with less than MPI_THREAD_MULTIPLE, or has finalised it. Ends the
  /// process with a sentence when MPI has not begun within the deadline: it waits for all processes
  /// of the job, and cannot be told to stop.
  explicit MpiSession(std::chrono::milliseconds deadline);
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  MPI_Comm comm() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  /// The greatest tag of a message.
  int greatest_tag() const;
  /// Finalises MPI if this initialised it. Called by all processes.
  void end();

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  bool owns_mpi_ = false;
};

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "src/comm/mpi/library.h"
#include "weft/error.h"

namespace weft {

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
class MpiSession {
 public:
  /// Initialises MPI unless the program has done so. Called by all processes. std::runtime_error
  /// when the program initialised it below MPI_THREAD_MULTIPLE, or has finalised it. MPI_Init waits
  /// for all processes of the job and cannot be cancelled: if it exceeds the deadline, this ends
  /// the process with a message.
  explicit MpiSession(std::chrono::milliseconds deadline);
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

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

// SPDX-License-Identifier: Apache-2.0
#pragma once

// MPI's own C++ interface was removed from the standard and does not compile without warnings.
#define OMPI_SKIP_MPICXX
#define MPICH_SKIP_MPICXX
#include <mpi.h>

#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/loaded_library.h"
#include "src/comm/mpi/wire.h"
#include "src/comm/world.h"
#include "weft/error.h"
#include "weft/export.h"

namespace weft {

// The MPI functions that weft uses. The library is loaded when a job needs it.

extern const LoadedLibrary kMpiLibrary;

WEFT_LOADED(kMpiLibrary, MPI_Allgather);
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
  /// Initialises MPI unless the program has done so. Called by all processes, each with a text, of
  /// which the first 1,000 bytes are kept. std::runtime_error when the program initialised it below
  /// MPI_THREAD_MULTIPLE, or has finalised it. MPI_Init waits for all processes of the job and
  /// cannot be cancelled: if this exceeds the deadline, it calls `end_process`.
  MpiSession(std::string_view text, std::chrono::milliseconds deadline, EndProcess end_process);

  MPI_Comm comm() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  /// The text of each process.
  const std::vector<std::string>& texts() const { return texts_; }
  /// The greatest tag that MPI allows.
  int greatest_tag() const;
  /// Finalises MPI if this object initialised it. Called by all processes.
  void end();

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  std::vector<std::string> texts_;
  bool owns_mpi_ = false;
};

/// Short messages between processes. Messages of one process arrive in the order of sending.
class MpiShortMessages : NotCopied {
 public:
  explicit MpiShortMessages(MPI_Comm comm);

  /// Copies header, `words` and data; their memory may be reused on return.
  void send(int to, const MpiHeader& header, MpiPayload words, const MpiSegments& data);
  /// Passes received messages to `take(from, header, payload)`.
  template <class Take> void receive(Take&& take) {
    while (const Buffer* buffer = arrived()) {
      MpiHeader header;
      std::memcpy(&header, buffer->bytes.data(), sizeof header);
      take(from_, header, MpiPayload(buffer->bytes).subspan(sizeof header, length_));
      post_next();
    }
  }
  /// Progresses sends; returns true when all are complete.
  bool all_sent();
  /// Called when no message will arrive any more.
  void close();

 private:
  static constexpr size_t kBuffers = 32;
  struct Buffer {
    alignas(64) std::array<std::byte, static_cast<size_t>(kMpiMessageBytes)> bytes;
  };
  /// Returns the message in the front buffer, or null.
  const Buffer* arrived();
  /// Moves the front buffer, after it was read, to the back.
  void post_next();
  std::unique_ptr<Buffer> free_buffer();

  MPI_Comm comm_;
  /// Posted receives; buffers fill in the order of posting, which starts at `front_`.
  std::unique_ptr<Buffer[]> buffers_;
  std::array<MPI_Request, kBuffers> awaited_{};
  size_t front_ = 0;
  int from_ = -1;
  size_t length_ = 0;

  std::vector<MPI_Request> leaving_;
  std::vector<std::unique_ptr<Buffer>> leaving_buffers_;
  std::vector<std::unique_ptr<Buffer>> free_buffers_;
};

class MpiWork;

/// Transfers in progress from and to user memory.
class MpiBulk : NotCopied {
 public:
  explicit MpiBulk(MPI_Comm comm) : comm_(comm) {}

  void start(const MpiTransfer& transfer, MpiWork& owner, uint64_t token);
  bool is_empty() const { return requests_.empty(); }

  /// Calls `ended(owner, token)` for each completed transfer; that may start others.
  template <class Ended> void test(Ended&& ended) {
    take_ended();
    for (const Owner& owner : ended_) ended(*owner.work, owner.token);
    ended_.clear();
  }

 private:
  struct Owner {
    MpiWork* work;
    uint64_t token;
  };
  void take_ended();

  MPI_Comm comm_;
  std::vector<MPI_Request> requests_;
  std::vector<Owner> owners_;
  std::vector<int> indices_;
  std::vector<Owner> ended_;
};

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/comm/mpi/library.h"
#include "src/comm/mpi/wire.h"
#include "src/comm/world.h"
#include "weft/export.h"

namespace weft {

/// The processes of a session that have met without MPI, whose `library` is what connects them.
struct MpiProcesses {
  MpiHandle comm = 0;
  int rank = 0;
  std::vector<std::string> texts = {};
  /// Returns why the connection to a process has ended, as in "rank 2 is gone (...)"; empty while
  /// it has not.
  std::function<std::string(int)> loss_of = {};
};

/// Processes of MPI, with a communicator that only weft uses; or of what works like MPI.
class MpiSession : NotCopied {
 public:
  /// The processes of the job. Initialises MPI unless the program has done so. MPI's start waits
  /// for all processes and cannot be cancelled: if it exceeds the deadline, calls `end_process`.
  static std::unique_ptr<MpiSession> of_job(std::string_view text,
                                            std::chrono::milliseconds deadline,
                                            EndProcess end_process);
  /// The processes of `comm`, all of which call this, each with a text, of which the first 1,000
  /// bytes are kept. std::runtime_error when some do not come within the deadline.
  MpiSession(const MpiLibrary& library, MpiHandle comm, std::string_view text,
             std::chrono::milliseconds deadline);

  MpiSession(const MpiLibrary& library, MpiProcesses processes);

  const MpiLibrary& library() const { return library_; }
  MpiHandle comm() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  /// The text of each process.
  const std::vector<std::string>& texts() const { return texts_; }
  /// The greatest tag that MPI allows.
  int greatest_tag() const;
  /// Why the connection to a process is known to have ended; empty otherwise, and always by MPI.
  std::string loss_of(int rank) const { return loss_of_ ? loss_of_(rank) : ""; }
  bool has_sockets() const { return loss_of_ != nullptr; }
  /// True when the program uses MPI itself: it initialised it, and finalises it.
  bool is_guest() const { return !owns_mpi_; }
  /// The level at which weft may call MPI; `multiple` when weft is its only user.
  MpiLevel level() const { return owns_mpi_ ? MpiLevel::multiple : level_; }
  /// Finalises MPI if this object initialised it. Called by all processes.
  void end();

 private:
  void await(MpiHandle& request, std::chrono::milliseconds deadline) const;

  const MpiLibrary& library_;
  MpiHandle comm_ = 0;
  int rank_ = 0;
  int size_ = 1;
  std::vector<std::string> texts_;
  std::function<std::string(int)> loss_of_;
  MpiLevel level_ = MpiLevel::single;
  bool owns_mpi_ = false;
};

/// Short messages between processes. Messages of one process arrive in the order of sending.
class MpiShortMessages : NotCopied {
 public:
  explicit MpiShortMessages(const MpiSession& session);

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

  const MpiLibrary& mpi_;
  const MpiHandle comm_;
  /// Posted receives; buffers fill in the order of posting, which starts at `front_`.
  std::unique_ptr<Buffer[]> buffers_;
  std::array<MpiHandle, kBuffers> awaited_{};
  size_t front_ = 0;
  int from_ = -1;
  size_t length_ = 0;

  std::vector<MpiHandle> leaving_;
  std::vector<std::unique_ptr<Buffer>> leaving_buffers_;
  std::vector<std::unique_ptr<Buffer>> free_buffers_;
};

class MpiWork;

/// Transfers in progress from and to user memory.
class MpiBulk : NotCopied {
 public:
  explicit MpiBulk(const MpiSession& session) : mpi_(session.library()), comm_(session.comm()) {}

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

  const MpiLibrary& mpi_;
  const MpiHandle comm_;
  std::vector<MpiHandle> requests_;
  std::vector<Owner> owners_;
  std::vector<int> indices_;
  std::vector<Owner> ended_;
};

}  // namespace weft

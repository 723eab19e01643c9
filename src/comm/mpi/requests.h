// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "src/comm/mpi/library.h"
#include "src/comm/mpi/wire.h"
#include "weft/export.h"

namespace weft {

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

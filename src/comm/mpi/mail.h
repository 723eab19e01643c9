// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "src/comm/mpi/session.h"
#include "src/comm/mpi/wire.h"

namespace weft {

/// Short messages between processes: those of one process arrive in the order in which it sent
/// them.
class MpiMail {
 public:
  explicit MpiMail(MPI_Comm comm);
  MpiMail(const MpiMail&) = delete;
  MpiMail& operator=(const MpiMail&) = delete;

  /// Copies header, `words` and data; the memory is free when this returns.
  void send(int to, const MpiHeader& header, MpiPayload words, const MpiSegments& data);
  /// Gives what has come to `take(from, header, payload)`.
  template <class Take>
  void receive(Take&& take) {
    while (const Letterbox* box = arrived()) {
      MpiHeader header;
      std::memcpy(&header, box->bytes.data(), sizeof header);
      take(from_, header, MpiPayload(box->bytes).subspan(sizeof header, length_));
      post_next();
    }
  }
  /// Lets sends go on; true when all have left.
  bool all_left();
  /// No message will come any more.
  void close();

 private:
  static constexpr size_t kBoxes = 32;
  struct Letterbox {
    alignas(64) std::array<std::byte, static_cast<size_t>(kMpiMailBytes)> bytes;
  };
  /// The message in the box at the front, or null.
  const Letterbox* arrived();
  /// The front box, read, goes to the back.
  void post_next();
  std::unique_ptr<Letterbox> free_box();

  MPI_Comm comm_;
  /// Receives that are posted; boxes fill in the order of their posting, which begins at `front_`.
  std::unique_ptr<Letterbox[]> boxes_;
  std::array<MPI_Request, kBoxes> awaited_{};
  size_t front_ = 0;
  int from_ = -1;
  size_t length_ = 0;

  std::vector<MPI_Request> leaving_;
  std::vector<std::unique_ptr<Letterbox>> leaving_boxes_;
  std::vector<std::unique_ptr<Letterbox>> free_boxes_;
};

}  // namespace weft

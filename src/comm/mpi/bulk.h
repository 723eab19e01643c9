// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/comm/mpi/session.h"
#include "src/comm/mpi/wire.h"

namespace weft {

class MpiWork;

/// Transfers in progress from and to user memory.
class MpiBulk {
 public:
  explicit MpiBulk(MPI_Comm comm) : comm_(comm) {}
  MpiBulk(const MpiBulk&) = delete;
  MpiBulk& operator=(const MpiBulk&) = delete;

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

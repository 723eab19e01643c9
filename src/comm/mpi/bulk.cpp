// SPDX-License-Identifier: Apache-2.0
#include "src/comm/mpi/bulk.h"

#include <algorithm>

namespace weft {

void MpiBulk::start(const MpiTransfer& transfer, MpiWork& owner, uint64_t token) {
  const auto [sends, segment, peer, tag] = transfer;
  const auto bytes = static_cast<int>(segment.bytes);
  MPI_Request request = MPI_REQUEST_NULL;
  if (sends) {
    check_mpi(MPI_Isend(segment.data, bytes, MPI_BYTE, peer, tag, comm_, &request), "MPI_Isend");
  } else {
    check_mpi(MPI_Irecv(segment.data, bytes, MPI_BYTE, peer, tag, comm_, &request), "MPI_Irecv");
  }
  requests_.push_back(request);
  owners_.push_back({&owner, token});
}

void MpiBulk::take_ended() {
  if (requests_.empty()) return;
  indices_.resize(requests_.size());
  int count = 0;
  check_mpi(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                         indices_.data(), MPI_STATUSES_IGNORE),
            "MPI_Testsome");
  if (count <= 0) return;
  // Reports transfers in the order in which they were started; compaction below keeps that order.
  std::sort(indices_.begin(), indices_.begin() + count);
  for (int i = 0; i < count; ++i) {
    ended_.push_back(owners_[static_cast<size_t>(indices_[static_cast<size_t>(i)])]);
  }
  size_t kept = 0;
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    requests_[kept] = requests_[i];
    owners_[kept++] = owners_[i];
  }
  requests_.resize(kept);
  owners_.resize(kept);
}

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include "src/comm/nccl/received.h"

#include <algorithm>
#include <numeric>

#include "src/comm/read_collective.h"

namespace weft {

static int64_t sum_of_counts(std::span<const int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

static int64_t count_of(std::span<const int64_t> counts, int rank) {
  return counts[static_cast<size_t>(rank)];
}

static int64_t received_elements(const Collective& call, const Piece& piece, int rank) {
  const bool is_root = rank == call.root;
  switch (call.kind) {
    case CollectiveKind::broadcast:
      return is_root ? 0 : piece.counts[0];
    case CollectiveKind::all_gather:
      return sum_of_counts(piece.counts) - count_of(piece.counts, rank);
    case CollectiveKind::gather:
      return is_root ? sum_of_counts(piece.counts) - count_of(piece.counts, rank) : 0;
    case CollectiveKind::scatter:
      return is_root ? 0 : count_of(piece.counts, rank);
    case CollectiveKind::all_to_all:
      return sum_of_counts(call.recv_counts) - count_of(call.recv_counts, rank);
    case CollectiveKind::recv:
      return piece.counts[0];
    default:
      return 0;
  }
}

static int64_t reduced_bytes(const Piece& piece, int64_t own, int64_t others, int size) {
  return (size - 1) * own * static_cast<int64_t>(size_of(piece.dtype)) +
         others * static_cast<int64_t>(size_of(piece.recv_dtype));
}

int64_t received_bytes(const Collective& call, int rank, int size) {
  int64_t bytes = 0;
  for (const Piece& piece : call.pieces) {
    if (call.kind == CollectiveKind::reduce_scatter) {
      bytes += reduced_bytes(piece, count_of(piece.counts, rank), 0, size);
    } else if (call.kind == CollectiveKind::all_reduce) {
      const int64_t own = std::max<int64_t>(0, share_of(piece.counts[0], size, rank).count);
      bytes += reduced_bytes(piece, own, piece.counts[0] - own, size);
    } else {
      bytes += received_elements(call, piece, rank) * static_cast<int64_t>(size_of(piece.dtype));
    }
  }
  return bytes;
}

}  // namespace weft

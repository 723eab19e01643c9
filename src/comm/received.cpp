// SPDX-License-Identifier: Apache-2.0
#include "src/comm/received.h"

#include <algorithm>

#include "src/comm/check.h"
#include "src/comm/read_collective.h"

namespace weft {

static int64_t received_elements(const Collective& call, const Piece& piece, int rank) {
  const int64_t all = sizes_of(call, piece, rank).recv;
  const auto own = static_cast<size_t>(rank);
  switch (call.kind) {
    case CollectiveKind::all_to_all: return all - call.recv_counts[own];
    case CollectiveKind::all_gather: return all - piece.counts[own];
    case CollectiveKind::gather:
    case CollectiveKind::scatter: return rank == call.root ? all - piece.counts[own] : all;
    default: return all;
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
      bytes += reduced_bytes(piece, piece.counts[static_cast<size_t>(rank)], 0, size);
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

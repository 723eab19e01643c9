// SPDX-License-Identifier: Apache-2.0
#include "src/comm/read_collective.h"

#include "src/cuda/runtime.h"
#include "src/cuda/streams.h"
#include "src/kernels/bulk_copy.h"
#include "weft/error.h"

namespace weft {

int phases_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::barrier:
      return 0;
    case CollectiveKind::all_reduce:
      return 2;
    default:
      return 1;
  }
}

int64_t read_collective(const CollectiveRead& read) {
  switch (read.mine.kind) {
    case CollectiveKind::broadcast:
      return read_broadcast(read);
    case CollectiveKind::all_gather:
      return read_all_gather(read);
    case CollectiveKind::reduce_scatter:
      return read_reduce_scatter(read);
    case CollectiveKind::all_reduce:
      return read_all_reduce(read);
    case CollectiveKind::gather:
      return read_gather(read);
    case CollectiveKind::scatter:
      return read_scatter(read);
    case CollectiveKind::all_to_all:
      return read_all_to_all(read);
    default:
      fail("collective: there is nothing to read in a ", name_of(read.mine.kind));
  }
}

int64_t part_offset(std::span<const int64_t> counts, int rank) {
  int64_t offset = 0;
  for (int r = 0; r < rank; ++r) offset += counts[static_cast<size_t>(r)];
  return offset;
}

void copy_elements(const Piece& piece, void* to, const void* from, int64_t count) {
  if (count == 0 || to == from) return;
  const size_t bytes = static_cast<size_t>(count) * size_of(piece.dtype);
  if (piece.device.kind == DeviceKind::cuda) {
    cuda::copy_on_devices(to, from, bytes, cuda::current_stream(piece.device));
  } else {
    copy_bytes(to, from, bytes);
  }
}

StoredCollective::StoredCollective(const Collective& call)
    : call_(call), pieces_(call.pieces.begin(), call.pieces.end()) {
  size_t numbers = call.recv_counts.size();
  for (const Piece& piece : pieces_) numbers += piece.counts.size();
  counts_.reserve(numbers);
  const auto stored = [&](std::span<const int64_t> counts) {
    const size_t begin = counts_.size();
    counts_.insert(counts_.end(), counts.begin(), counts.end());
    return std::span<const int64_t>(counts_).subspan(begin);
  };
  for (Piece& piece : pieces_) piece.counts = stored(piece.counts);
  call_.recv_counts = stored(call.recv_counts);
  call_.pieces = pieces_;
}

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include "src/comm/read_collective.h"

#include <algorithm>

#include "src/device/cuda/runtime.h"
#include "src/device/cuda/streams.h"
#include "src/kernels/copy/bulk_copy.h"
#include "weft/error.h"

namespace weft {

int phases_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::barrier: return 0;
    case CollectiveKind::all_reduce: return 2;
    default: return 1;
  }
}

int64_t read_collective(const CollectiveRead& read) {
  switch (read.mine.kind) {
    case CollectiveKind::broadcast: return read_broadcast(read);
    case CollectiveKind::all_gather: return read_all_gather(read);
    case CollectiveKind::reduce_scatter: return read_reduce_scatter(read);
    case CollectiveKind::all_reduce: return read_all_reduce(read);
    case CollectiveKind::gather: return read_gather(read);
    case CollectiveKind::scatter: return read_scatter(read);
    case CollectiveKind::all_to_all: return read_all_to_all(read);
    default:
      fail("collective: kind is ", name_of(read.mine.kind),
           ", expected one that reads memory of other ranks");
  }
}

/// The elements before rank r's part in the memory that a rank sends, be it the caller's or half a
/// staging buffer.
static int64_t sent_before(const Collective& call, const Piece& piece, int ranks, int r) {
  if (!sends_all_parts(call.kind)) return 0;
  if (call.kind == CollectiveKind::all_reduce && call.rounds == 1) {
    return share_of(piece.counts[0], ranks, r).begin;
  }
  int64_t before = 0;
  for (int part = 0; part < r; ++part) {
    before += most_of(part_of(call, piece, ranks, part), call.rounds);
  }
  return before;
}

const void* CollectiveRead::sent(int from, size_t i, int r) const {
  const Collective* call = from == rank ? &mine : of(from);
  if (!call) return nullptr;
  const Piece& piece = call->pieces[i];
  int64_t elements = sent_before(*call, piece, size(), r);
  size_t bytes = 0;
  if (call->rounds == 1) {
    elements += range(mine.pieces[i], r).begin;
  } else {
    bytes = static_cast<size_t>(round.index % 2) * call->half_bytes;
  }
  bytes += static_cast<size_t>(elements) * size_of(piece.dtype);
  return static_cast<const std::byte*>(piece.send) + bytes;
}

const void* CollectiveRead::reduced(int from, size_t i) const {
  const Collective* call = of(from);
  if (!call) return nullptr;
  const Piece& piece = call->pieces[i];
  int64_t before = 0;
  if (call->rounds == 1) {
    before = share_of(piece.counts[0], size(), from).begin + range(piece, from).begin;
  }
  return static_cast<const std::byte*>(piece.recv) +
         static_cast<size_t>(before) * size_of(piece.recv_dtype);
}

int CollectiveReader::rounds(std::span<const void* const> shown) {
  for (const void* call : shown) {
    if (call) rounds_ = std::max(rounds_, static_cast<const Collective*>(call)->rounds);
  }
  return rounds_;
}

void copy_elements(const Piece& piece, void* to, const void* from, int64_t count, int64_t of) {
  if (count == 0 || to == from) return;
  const size_t bytes = static_cast<size_t>(count) * size_of(piece.dtype);
  if (piece.device.kind == DeviceKind::cuda) {
    cuda::copy_on_devices(to, from, bytes, cuda::current_stream(piece.device));
  } else {
    copy_bytes(to, from, bytes, static_cast<size_t>(of) * size_of(piece.dtype));
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

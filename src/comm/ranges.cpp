// SPDX-License-Identifier: Apache-2.0
#include "src/comm/ranges.h"

#include <algorithm>
#include <numeric>

namespace weft {

/// The approximate bytes that a rank copies in a round, which stay in the caches until they are
/// read.
static constexpr int64_t kRoundBytes = int64_t{512} << 10;
static constexpr int64_t kLineElements = 64;

static constexpr int64_t whole_lines(int64_t elements) {
  return (elements + kLineElements - 1) / kLineElements * kLineElements;
}

int64_t most_of(int64_t part, int rounds) {
  return rounds == 1 ? part : whole_lines((part + rounds - 1) / rounds);
}

ElementRange range_of(int64_t part, const Round& round) {
  const int64_t each = most_of(part, round.count);
  const int64_t begin = std::min(part, each * round.index);
  return {begin, std::min(each, part - begin)};
}

ElementRange share_of(int64_t elements, int ranks, int rank) {
  const int64_t each = whole_lines((elements + ranks - 1) / ranks);
  const int64_t begin = std::min(elements, each * rank);
  return {begin, std::min(each, elements - begin)};
}

int64_t part_offset(std::span<const int64_t> counts, int rank) {
  int64_t offset = 0;
  for (int r = 0; r < rank; ++r) offset += counts[static_cast<size_t>(r)];
  return offset;
}

bool sends_all_parts(CollectiveKind kind) {
  return is_reduction(kind) || kind == CollectiveKind::scatter ||
         kind == CollectiveKind::all_to_all;
}

int64_t part_of(const Collective& call, const Piece& piece, int ranks, int rank) {
  if (call.kind == CollectiveKind::broadcast) return piece.counts[0];
  if (call.kind == CollectiveKind::all_reduce) return share_of(piece.counts[0], ranks, rank).count;
  return piece.counts[static_cast<size_t>(rank)];
}

/// Whether a collective that reduces nothing moves data from one rank to another.
static bool moves(const Collective& call, int from, int to) {
  switch (call.kind) {
    case CollectiveKind::broadcast:
    case CollectiveKind::scatter: return from == call.root;
    case CollectiveKind::gather: return to == call.root;
    default: return true;
  }
}

ElementRange range_sent(const Collective& call, const Piece& piece, int ranks, int from, int to) {
  if (!moves(call, from, to)) return {0, 0};
  if (!sends_all_parts(call.kind)) return {0, part_of(call, piece, ranks, from)};
  return {part_offset(piece.counts, to), part_of(call, piece, ranks, to)};
}

ElementRange range_received(const Collective& call, const Piece& piece, int ranks, int from,
                            int to) {
  if (!moves(call, from, to)) return {0, 0};
  const bool is_all_to_all = call.kind == CollectiveKind::all_to_all;
  const std::span<const int64_t> counts = is_all_to_all ? call.recv_counts : piece.counts;
  if (call.kind == CollectiveKind::broadcast || call.kind == CollectiveKind::scatter) {
    return {0, part_of(call, piece, ranks, to)};
  }
  return {part_offset(counts, from), counts[static_cast<size_t>(from)]};
}

static int64_t sum_of(std::span<const int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

PieceSizes sizes_of(const Collective& call, const Piece& piece, int rank) {
  const auto own = [&] { return piece.counts[static_cast<size_t>(rank)]; };
  const bool is_root = rank == call.root;
  switch (call.kind) {
    case CollectiveKind::broadcast:
      return {is_root ? piece.counts[0] : 0, is_root ? 0 : piece.counts[0], 0};
    case CollectiveKind::all_gather:
      return {own(), sum_of(piece.counts), part_offset(piece.counts, rank)};
    case CollectiveKind::reduce_scatter:
      return {sum_of(piece.counts), own(), part_offset(piece.counts, rank)};
    case CollectiveKind::gather:
      return {own(), is_root ? sum_of(piece.counts) : 0, part_offset(piece.counts, rank)};
    case CollectiveKind::scatter:
      return {is_root ? sum_of(piece.counts) : 0, own(), part_offset(piece.counts, rank)};
    case CollectiveKind::all_to_all: return {sum_of(piece.counts), sum_of(call.recv_counts), 0};
    case CollectiveKind::send: return {piece.counts[0], 0, 0};
    case CollectiveKind::recv: return {0, piece.counts[0], 0};
    default: return {piece.counts[0], piece.counts[0], 0};
  }
}

static int64_t elements_of_others(const Collective& call, const Piece& piece, int rank, int size) {
  const int64_t all = sizes_of(call, piece, rank).recv;
  if (call.kind == CollectiveKind::broadcast || is_message(call.kind)) return all;
  return all - range_received(call, piece, size, rank, rank).count;
}

int64_t received_bytes(const Collective& call, int rank, int size) {
  int64_t bytes = 0;
  for (const Piece& piece : call.pieces) {
    const auto sent = static_cast<int64_t>(size_of(piece.dtype));
    if (!is_reduction(call.kind)) {
      bytes += elements_of_others(call, piece, rank, size) * sent;
      continue;
    }
    const int64_t own = part_of(call, piece, size, rank);
    bytes += (size - 1) * own * sent;
    if (call.kind == CollectiveKind::all_reduce) {
      bytes += (piece.counts[0] - own) * static_cast<int64_t>(size_of(piece.recv_dtype));
    }
  }
  return bytes;
}

int rounds_of(const Collective& call, int ranks) {
  if (call.kind == CollectiveKind::all_to_all) return 1;
  int64_t all = 0, most = 0;
  for (int r = 0; r < ranks; ++r) {
    int64_t bytes = 0;
    for (const Piece& piece : call.pieces) {
      bytes += part_of(call, piece, ranks, r) * static_cast<int64_t>(size_of(piece.dtype));
    }
    all += bytes;
    most = std::max(most, bytes);
  }
  const int64_t shown = sends_all_parts(call.kind) ? all : most;
  return static_cast<int>(std::clamp<int64_t>(shown / kRoundBytes, 1, kMostRounds));
}

}  // namespace weft

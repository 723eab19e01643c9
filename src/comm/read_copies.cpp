// SPDX-License-Identifier: Apache-2.0
#include "src/comm/read_collective.h"
#include "src/comm/signature.h"

namespace weft {

/// Copies this round's elements of rank `part`'s part of piece i, as sent by rank `from`, to offset
/// `before` of `recv`. Returns the bytes that came from another rank.
static int64_t read_part(const CollectiveRead& read, size_t i, int from, int part, int64_t before) {
  const Piece& piece = read.mine.pieces[i];
  const ElementRange range = read.range(piece, part);
  const auto element = static_cast<int64_t>(size_of(piece.dtype));
  std::byte* to = static_cast<std::byte*>(piece.recv) + (before + range.begin) * element;
  if (const void* sent = read.sent(from, i, part)) {
    copy_elements(piece, to, sent, range.count, part_of(read.mine, piece, read.size(), part));
  }
  return from == read.rank ? 0 : range.count * element;
}

int64_t read_broadcast(const CollectiveRead& read) {
  int64_t bytes = 0;
  for (size_t i = 0; i < read.mine.pieces.size(); ++i) {
    // The root need not receive.
    if (!read.mine.pieces[i].recv) continue;
    bytes += read_part(read, i, read.mine.root, read.rank, 0);
  }
  return bytes;
}

/// Copies the parts of all ranks to their positions in recv; each rank begins with a different
/// source.
static int64_t read_parts(const CollectiveRead& read) {
  int64_t bytes = 0;
  for (size_t i = 0; i < read.mine.pieces.size(); ++i) {
    const std::span<const int64_t> counts = read.mine.pieces[i].counts;
    int64_t before = part_offset(counts, read.rank);
    for (int step = 1; step <= read.size(); ++step) {
      const int from = (read.rank + step) % read.size();
      before = from == 0 ? 0 : before + counts[static_cast<size_t>(from) - 1];
      bytes += read_part(read, i, from, from, before);
    }
  }
  return bytes;
}

int64_t read_all_gather(const CollectiveRead& read) { return read_parts(read); }

int64_t read_gather(const CollectiveRead& read) {
  return read.rank == read.mine.root ? read_parts(read) : 0;
}

int64_t read_scatter(const CollectiveRead& read) {
  int64_t bytes = 0;
  for (size_t i = 0; i < read.mine.pieces.size(); ++i) {
    bytes += read_part(read, i, read.mine.root, read.rank, 0);
  }
  return bytes;
}

static void check_sent(const Collective& peer, int from, int rank, int64_t expected) {
  const int64_t sent = peer.pieces[0].counts[static_cast<size_t>(rank)];
  if (sent == expected) return;
  throw PeerMismatch{from, counts_in_words(sent, rank, expected)};
}

int64_t read_all_to_all(const CollectiveRead& read) {
  const Piece& piece = read.mine.pieces[0];
  const auto element = static_cast<int64_t>(size_of(piece.dtype));
  int64_t bytes = 0;
  for (int step = 1; step <= read.size(); ++step) {
    const int from = (read.rank + step) % read.size();
    const int64_t count = read.mine.recv_counts[static_cast<size_t>(from)];
    if (const Collective* peer = read.of(from)) {
      check_sent(*peer, from, read.rank, count);
      std::byte* to =
          static_cast<std::byte*>(piece.recv) + part_offset(read.mine.recv_counts, from) * element;
      copy_elements(piece, to, read.sent(from, 0, read.rank), count);
    }
    if (from != read.rank) bytes += count * element;
  }
  return bytes;
}

}  // namespace weft

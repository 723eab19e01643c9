// SPDX-License-Identifier: Apache-2.0
#include "src/comm/read_collective.h"

namespace weft {

static std::byte* element_at(void* data, int64_t index, DType dtype) {
  return static_cast<std::byte*>(data) + index * static_cast<int64_t>(size_of(dtype));
}

static const std::byte* element_at(const void* data, int64_t index, DType dtype) {
  return static_cast<const std::byte*>(data) + index * static_cast<int64_t>(size_of(dtype));
}

static int64_t bytes_of(int64_t count, DType dtype) {
  return count * static_cast<int64_t>(size_of(dtype));
}

int64_t read_broadcast(const CollectiveRead& read) {
  const int root = read.mine.root;
  int64_t bytes = 0;
  for (size_t i = 0; i < read.mine.pieces.size(); ++i) {
    const Piece& piece = read.mine.pieces[i];
    const int64_t count = piece.counts[0];
    if (read.rank == root) {
      if (piece.recv) copy_elements(piece, piece.recv, piece.send, count);
      continue;
    }
    if (const Collective* from = read.of(root)) {
      copy_elements(piece, piece.recv, from->pieces[i].send, count);
    }
    bytes += bytes_of(count, piece.dtype);
  }
  return bytes;
}

/// The parts of all ranks to their places in recv; each rank begins with another one's.
static int64_t read_parts(const CollectiveRead& read) {
  int64_t bytes = 0;
  for (int step = 1; step <= read.size(); ++step) {
    const int from = (read.rank + step) % read.size();
    const Collective* peer = read.of(from);
    for (size_t i = 0; i < read.mine.pieces.size(); ++i) {
      const Piece& piece = read.mine.pieces[i];
      const int64_t count = piece.counts[static_cast<size_t>(from)];
      void* to = element_at(piece.recv, part_offset(piece.counts, from), piece.dtype);
      if (peer) copy_elements(piece, to, peer->pieces[i].send, count);
      if (from != read.rank) bytes += bytes_of(count, piece.dtype);
    }
  }
  return bytes;
}

int64_t read_all_gather(const CollectiveRead& read) { return read_parts(read); }

int64_t read_gather(const CollectiveRead& read) {
  return read.rank == read.mine.root ? read_parts(read) : 0;
}

int64_t read_scatter(const CollectiveRead& read) {
  const Collective* root = read.of(read.mine.root);
  int64_t bytes = 0;
  for (size_t i = 0; i < read.mine.pieces.size(); ++i) {
    const Piece& piece = read.mine.pieces[i];
    const int64_t count = piece.counts[static_cast<size_t>(read.rank)];
    const int64_t offset = part_offset(piece.counts, read.rank);
    if (root) {
      const void* from = element_at(root->pieces[i].send, offset, piece.dtype);
      copy_elements(piece, piece.recv, from, count);
    }
    if (read.rank != read.mine.root) bytes += bytes_of(count, piece.dtype);
  }
  return bytes;
}

static void check_sent(const Collective& peer, int from, int rank, int64_t expected) {
  const int64_t sent = peer.pieces[0].counts[static_cast<size_t>(rank)];
  if (sent == expected) return;
  throw PeerMismatch{from, " sends " + std::to_string(sent) + " elements to rank " +
                               std::to_string(rank) + ", which expects " +
                               std::to_string(expected)};
}

int64_t read_all_to_all(const CollectiveRead& read) {
  const Piece& piece = read.mine.pieces[0];
  int64_t bytes = 0;
  for (int step = 1; step <= read.size(); ++step) {
    const int from = (read.rank + step) % read.size();
    const int64_t count = read.mine.recv_counts[static_cast<size_t>(from)];
    void* to = element_at(piece.recv, part_offset(read.mine.recv_counts, from), piece.dtype);
    if (const Collective* peer = read.of(from)) {
      check_sent(*peer, from, read.rank, count);
      const Piece& sent = peer->pieces[0];
      copy_elements(piece, to,
                    element_at(sent.send, part_offset(sent.counts, read.rank), piece.dtype), count);
    }
    if (from != read.rank) bytes += bytes_of(count, piece.dtype);
  }
  return bytes;
}

}  // namespace weft

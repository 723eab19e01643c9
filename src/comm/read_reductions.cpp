// SPDX-License-Identifier: Apache-2.0
#include "src/comm/read_collective.h"
#include "src/comm/reduce.h"

namespace weft {

static std::byte* at(void* data, int64_t index, DType dtype) {
  return static_cast<std::byte*>(data) + index * static_cast<int64_t>(size_of(dtype));
}

/// Reduces this round's elements of this rank's part of piece `i` over all ranks, to offset
/// `before` of `recv`. Returns the bytes read.
static int64_t reduce_part(const CollectiveRead& read, size_t i, int64_t before,
                           std::vector<const void*>& sources) {
  const Piece& piece = read.mine.pieces[i];
  const ElementRange range = read.range(piece, read.rank);
  sources.clear();
  for (int r = 0; r < read.size(); ++r) {
    if (const void* sent = read.sent(r, i, read.rank)) sources.push_back(sent);
  }
  void* to = at(piece.recv, before + range.begin, piece.recv_dtype);
  const ReduceInto into{to, piece.recv_dtype, piece.accumulate, piece.device};
  reduce_n(read.mine.op, piece.dtype, sources, into, range.count);
  return (read.size() - 1) * range.count * static_cast<int64_t>(size_of(piece.dtype));
}

int64_t read_reduce_scatter(const CollectiveRead& read) {
  std::vector<const void*> sources;
  int64_t bytes = 0;
  for (size_t i = 0; i < read.mine.pieces.size(); ++i) bytes += reduce_part(read, i, 0, sources);
  return bytes;
}

/// Each rank reduces its own share, then all read the others' shares, so that all hold the same
/// bits.
static int64_t reduce_shares(const CollectiveRead& read) {
  std::vector<const void*> sources;
  int64_t bytes = 0;
  for (size_t i = 0; i < read.mine.pieces.size(); ++i) {
    const int64_t elements = read.mine.pieces[i].counts[0];
    bytes += reduce_part(read, i, share_of(elements, read.size(), read.rank).begin, sources);
  }
  return bytes;
}

static int64_t read_shares(const CollectiveRead& read) {
  int64_t bytes = 0;
  for (int step = 1; step < read.size(); ++step) {
    const int from = (read.rank + step) % read.size();
    for (size_t i = 0; i < read.mine.pieces.size(); ++i) {
      const Piece& piece = read.mine.pieces[i];
      const ElementRange range = read.range(piece, from);
      const int64_t before = share_of(piece.counts[0], read.size(), from).begin;
      void* to = at(piece.recv, before + range.begin, piece.recv_dtype);
      if (const void* reduced = read.reduced(from, i)) {
        Piece result = piece;
        result.dtype = piece.recv_dtype;
        copy_elements(result, to, reduced, range.count,
                      part_of(read.mine, piece, read.size(), from));
      } else {
        const void* own = read.sent(read.rank, i, from);
        const ReduceInto into{to, piece.recv_dtype, false, piece.device};
        reduce_n(ReduceOp::sum, piece.dtype, {&own, 1}, into, range.count);
      }
      bytes += range.count * static_cast<int64_t>(size_of(piece.recv_dtype));
    }
  }
  return bytes;
}

int64_t read_all_reduce(const CollectiveRead& read) {
  return read.phase == 0 ? reduce_shares(read) : read_shares(read);
}

}  // namespace weft

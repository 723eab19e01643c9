// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "src/comm/read_collective.h"
#include "src/comm/reduce.h"

namespace weft {

ReducedRange share_of(int64_t elements, int ranks, int rank) {
  constexpr int64_t line = 64;
  const int64_t each = ((elements + ranks - 1) / ranks + line - 1) / line * line;
  const int64_t begin = std::min(elements, each * rank);
  return {begin, std::min(each, elements - begin)};
}

static const std::byte* at(const void* data, int64_t index, DType dtype) {
  return static_cast<const std::byte*>(data) + index * static_cast<int64_t>(size_of(dtype));
}

/// Reduces elements [begin, begin + count) of all ranks' piece `i` into `to`; returns the bytes
/// read.
static int64_t reduce_range(const CollectiveRead& read, size_t i, const ReducedRange& range,
                            void* to, std::vector<const void*>& sources) {
  const Piece& piece = read.mine.pieces[i];
  sources.clear();
  for (int r = 0; r < read.size(); ++r) {
    const Collective* peer = read.of(r);
    if (peer) sources.push_back(at(peer->pieces[i].send, range.begin, piece.dtype));
  }
  const ReduceInto into{to, piece.recv_dtype, piece.accumulate, piece.device};
  reduce_n(read.mine.op, piece.dtype, sources, into, range.count);
  return (read.size() - 1) * range.count * static_cast<int64_t>(size_of(piece.dtype));
}

int64_t read_reduce_scatter(const CollectiveRead& read) {
  std::vector<const void*> sources;
  int64_t bytes = 0;
  for (size_t i = 0; i < read.mine.pieces.size(); ++i) {
    const Piece& piece = read.mine.pieces[i];
    const ReducedRange own{part_offset(piece.counts, read.rank),
                           piece.counts[static_cast<size_t>(read.rank)]};
    bytes += reduce_range(read, i, own, piece.recv, sources);
  }
  return bytes;
}

/// Each rank reduces its share; all read the others' shares, so that all hold the same bits.
static int64_t reduce_shares(const CollectiveRead& read) {
  std::vector<const void*> sources;
  int64_t bytes = 0;
  for (size_t i = 0; i < read.mine.pieces.size(); ++i) {
    const Piece& piece = read.mine.pieces[i];
    const ReducedRange own = share_of(piece.counts[0], read.size(), read.rank);
    auto* to = const_cast<std::byte*>(at(piece.recv, own.begin, piece.recv_dtype));
    bytes += reduce_range(read, i, own, to, sources);
  }
  return bytes;
}

static int64_t read_shares(const CollectiveRead& read) {
  int64_t bytes = 0;
  for (int step = 1; step < read.size(); ++step) {
    const int from = (read.rank + step) % read.size();
    const Collective* peer = read.of(from);
    for (size_t i = 0; i < read.mine.pieces.size(); ++i) {
      const Piece& piece = read.mine.pieces[i];
      const ReducedRange share = share_of(piece.counts[0], read.size(), from);
      auto* to = const_cast<std::byte*>(at(piece.recv, share.begin, piece.recv_dtype));
      if (peer) {
        Piece result = piece;
        result.dtype = piece.recv_dtype;
        copy_elements(result, to, at(peer->pieces[i].recv, share.begin, piece.recv_dtype),
                      share.count);
      } else {
        const void* own = at(piece.send, share.begin, piece.dtype);
        const ReduceInto into{to, piece.recv_dtype, false, piece.device};
        reduce_n(ReduceOp::sum, piece.dtype, {&own, 1}, into, share.count);
      }
      bytes += share.count * static_cast<int64_t>(size_of(piece.recv_dtype));
    }
  }
  return bytes;
}

int64_t read_all_reduce(const CollectiveRead& read) {
  return read.phase == 0 ? reduce_shares(read) : read_shares(read);
}

}  // namespace weft

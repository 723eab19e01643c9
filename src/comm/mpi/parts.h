// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/comm/mpi/wire.h"
#include "src/comm/transport.h"

namespace weft {

/// Memory, cut where one message of MPI cannot hold it.
MpiSegments segments_of(const void* data, int64_t bytes);

/// Blocks of a rank's data that wait to be reduced at a time.
inline constexpr int64_t kMpiBlocksInFlight = 4;

/// Elements [begin, begin + count) of a piece, which one rank reduces; in the result they lie from
/// `to` on.
struct PieceRange {
  size_t piece;
  int64_t begin;
  int64_t count;
  int64_t to;
};

/// What one rank of a collective sends to each other rank, and receives from it. Both ends work it
/// out for themselves.
class MpiParts {
 public:
  /// `call` outlives this.
  MpiParts(const Collective& call, int rank, int size);

  bool reduces() const { return reduces_; }
  /// True for an all_reduce so small that both ranks of a pair reduce all of it.
  bool is_direct() const { return direct_; }
  /// True when ranks tell each other what they have reduced.
  bool shares_results() const { return call_.kind == CollectiveKind::all_reduce && !direct_; }

  /// What goes to rank r when all have called; of a reduction, r's ranges.
  MpiSegments to(int r) const;
  /// Where that of rank r goes; nothing of a reduction.
  MpiSegments from(int r) const;
  /// What rank r reduces, cut into blocks.
  std::vector<PieceRange> ranges(int r) const;
  /// Bytes of a block at most; a multiple of 64.
  int64_t block_bytes() const { return block_bytes_; }
  /// A range of what a rank gives to a reduction.
  MpiSegment source(const PieceRange& range) const;
  /// A range of the result, in memory.
  MpiSegment result(const PieceRange& range) const;
  /// The results of rank r.
  MpiSegments results(int r) const;

  /// Bytes that come from other ranks, as they are counted on every kind of interconnect.
  int64_t received_bytes() const;

 private:
  PieceRange share(size_t piece, int r) const;

  const Collective& call_;
  const int rank_;
  const int size_;
  const bool reduces_;
  const int64_t block_bytes_;
  bool direct_ = false;
};

}  // namespace weft

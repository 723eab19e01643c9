// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/comm/mpi/wire.h"
#include "src/comm/transport.h"

namespace weft {

/// Splits memory into segments that each fit into one MPI message.
MpiSegments segments_of(const void* data, int64_t bytes);

/// Blocks of one rank's data that may wait for reduction at a time.
inline constexpr int64_t kMpiBlocksInFlight = 4;

/// Elements [begin, begin + count) of a piece, which one rank reduces; the result stores them from
/// `to` on.
struct PieceRange {
  size_t piece;
  int64_t begin;
  int64_t count;
  int64_t to;
};

/// The data that one rank of a collective sends to and receives from each other rank. Sender and
/// receiver compute it independently.
class MpiParts {
 public:
  /// `call` must outlive this.
  MpiParts(const Collective& call, int rank, int size);

  bool reduces() const { return reduces_; }
  /// True when ranks send each other their results.
  bool shares_results() const { return call_.kind == CollectiveKind::all_reduce && !direct_; }

  /// Returns the data for rank r once all have called; for a reduction, r's ranges.
  MpiSegments to(int r) const;
  /// Returns where rank r's data is received; empty for a reduction.
  MpiSegments from(int r) const;
  /// Returns the elements that rank r reduces, split into blocks.
  std::vector<PieceRange> ranges(int r) const;
  /// Maximum bytes of a block; a multiple of 64.
  int64_t block_bytes() const { return block_bytes_; }
  /// Returns this rank's input to a reduction for a range.
  MpiSegment source(const PieceRange& range) const;
  /// Returns the memory of the result for a range.
  MpiSegment result(const PieceRange& range) const;
  /// Returns the memory of the results that rank r computes.
  MpiSegments results(int r) const;

 private:
  PieceRange share(size_t piece, int r) const;

  const Collective& call_;
  const int rank_;
  const int size_;
  const bool reduces_;
  const int64_t block_bytes_;
  /// True for a small all_reduce of two ranks, both of which reduce all of it.
  bool direct_ = false;
};

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/comm/transport.h"

namespace weft {

/// One round of a large collective. Processes see only each other's shared memory; data elsewhere
/// is copied there in rounds, alternating between two buffers, so that the owner fills one while
/// the others read the other. Each round handles the same share of each part of each piece.
struct Round {
  int index = 0;
  int count = 1;
};

/// A range of elements of a part or of a piece.
struct ElementRange {
  int64_t begin;
  int64_t count;
};

/// The range of a part of `part` elements that a round handles, in whole cache lines.
ElementRange range_of(int64_t part, const Round& round);
/// The most elements of a part that any round handles.
int64_t most_of(int64_t part, int rounds);

/// Rank r's share of an all_reduce, in whole cache lines, so that no two ranks write the same line.
ElementRange share_of(int64_t elements, int ranks, int rank);

/// The number of elements before rank r's part.
int64_t part_offset(std::span<const int64_t> counts, int rank);

/// Returns true when a rank sends the parts of all ranks, false when it sends one part.
bool sends_all_parts(CollectiveKind kind);
/// The number of elements of a piece that are for, or from, that rank.
int64_t part_of(const Collective& call, const Piece& piece, int ranks, int rank);
/// The range of that rank's part in memory that holds the parts of all ranks.
ElementRange part_in_whole(const Collective& call, const Piece& piece, int ranks, int rank);

// The elements of a piece that rank `from` sends to rank `to`, which may be the same, in a
// collective that reduces nothing; count 0: none.

/// Their range in the sender's memory.
ElementRange range_sent(const Collective& call, const Piece& piece, int ranks, int from, int to);
/// Their range in the receiver's memory, with the call and the piece of that rank.
ElementRange range_received(const Collective& call, const Piece& piece, int ranks, int from,
                            int to);

/// The number of elements that a piece sends and receives on one rank, and the position of the
/// rank's own part in the whole.
struct PieceSizes {
  int64_t send = 0, recv = 0, own_offset = 0;
};
PieceSizes sizes_of(const Collective& call, const Piece& piece, int rank);

/// Returns the bytes that a rank receives from others in a call, counted the same way on every kind
/// of interconnect.
int64_t received_bytes(const Collective& call, int rank, int size);

/// A limit of `rounds_of`, well below what the progress of a slot can count.
inline constexpr int kMostRounds = 16384;
/// The number of rounds that a call in a group of that size has if any of its ranks needs rounds;
/// equal on all ranks without communication. 1 for little data, and for an all_to_all, whose ranks
/// do not know each other's counts.
int rounds_of(const Collective& call, int ranks);

/// The phases of a collective: reads that begin when all ranks have ended the previous phase.
int phases_of(CollectiveKind kind);

/// Runs one rank's part of a collective whose other ranks do not exist (a fake world): copies the
/// rank's own part. `shown` is a buffer of one pointer a rank.
void run_with_absent_peers(const Collective& call, int rank, std::vector<const void*>& shown);

/// Copies elements of the piece's dtype on its device, unless source and destination are the same:
/// a whole part, or `count` elements of a part of `of`.
void copy_elements(const Piece& piece, void* to, const void* from, int64_t count, int64_t of);
inline void copy_elements(const Piece& piece, void* to, const void* from, int64_t count) {
  copy_elements(piece, to, from, count, count);
}

/// The destination of a reduction. bf16 and f16 are reduced in f32 and rounded once, to `dtype`.
struct ReduceInto {
  void* data = nullptr;
  DType dtype = DType::f32;
  /// Adds to the values in `data`.
  bool accumulate = false;
  /// The device of `data` and of the sources.
  Device device = cpu;
};

/// Sets into[i] to the reduction of sources[0][i], sources[1][i], ... in that order, for `count`
/// elements; the bits do not depend on how a range is divided. `into` may be one of the sources if
/// the dtypes are equal. Integers wrap; the sum of bools is "any"; avg divides by the number of
/// sources. Throws std::invalid_argument where `check_reduction` does.
void reduce_n(ReduceOp op, DType dtype, std::span<const void* const> sources,
              const ReduceInto& into, int64_t count);

/// Throws std::invalid_argument naming `what` for an average of integers, and for a result of
/// another dtype unless both are floating.
void check_reduction(const char* what, ReduceOp op, DType dtype, DType into);

/// A difference that a rank finds in another rank's call while reading, though their signatures
/// were equal.
struct PeerMismatch {
  int rank;
  std::string text;
};

/// Does one rank's part of a collective in the phases of each round. The first counts the bytes of
/// all.
class CollectiveReader : public ExchangeReader {
 public:
  CollectiveReader(const Collective& call, int rank) : call_(call), rank_(rank) {}
  int rounds(std::span<const void* const> shown) final;
  int64_t read(int phase, std::span<const void* const> shown) final;

 private:
  const Collective& call_;
  int rank_;
  int rounds_ = 1;
};

/// A collective that owns its pieces and counts.
class StoredCollective {
 public:
  explicit StoredCollective(const Collective& call);
  const Collective& call() const { return call_; }

 private:
  Collective call_;
  std::vector<Piece> pieces_;
  std::vector<int64_t> counts_;
};

}  // namespace weft

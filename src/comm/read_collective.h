// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/comm/ranges.h"
#include "src/comm/transport.h"

namespace weft {

/// One rank's view of a collective whose ranks read each other's memory, in one phase of a round.
struct CollectiveRead {
  const Collective& mine;
  int rank;
  int phase;
  /// Each rank's `Collective`; null for a rank that does not exist.
  std::span<const void* const> shown;
  Round round = {};

  int size() const { return static_cast<int>(shown.size()); }
  const Collective* of(int r) const {
    return static_cast<const Collective*>(shown[static_cast<size_t>(r)]);
  }
  /// The elements of rank r's part of a piece that belong to this round.
  ElementRange range(const Piece& piece, int r) const {
    return range_of(part_of(mine, piece, size(), r), round);
  }
  /// Returns the address of that range of rank r's part of piece i in rank `from`'s memory; null
  /// when `from` does not exist.
  const void* sent(int from, size_t i, int r) const;
  /// Returns the address of that range of the share that rank `from` has reduced.
  const void* reduced(int from, size_t i) const;
};

/// The phases of a collective: reads that begin when all ranks have ended the previous phase.
int phases_of(CollectiveKind kind);

/// Does this rank's part of one phase.
void read_collective(const CollectiveRead& read);

/// Runs one rank's part of a collective whose other ranks do not exist (a fake world): copies the
/// rank's own part. `shown` is a buffer of one pointer a rank.
void run_with_absent_peers(const Collective& call, int rank, std::vector<const void*>& shown);

/// Copies elements of the piece's dtype on its device, unless source and destination are the same:
/// a whole part, or `count` elements of a part of `of`.
void copy_elements(const Piece& piece, void* to, const void* from, int64_t count, int64_t of);
inline void copy_elements(const Piece& piece, void* to, const void* from, int64_t count) {
  copy_elements(piece, to, from, count, count);
}

/// A difference that a rank finds in another rank's call while reading, though their signatures
/// were equal.
struct PeerMismatch {
  int rank;
  std::string text;
};

/// Runs `read_collective` for the phases of each round. The first counts the bytes of all.
class CollectiveReader : public ExchangeReader {
 public:
  CollectiveReader(const Collective& call, int rank) : call_(call), rank_(rank) {}
  int rounds(std::span<const void* const> shown) final;
  int64_t read(int phase, std::span<const void* const> shown) final {
    const int phases = phases_of(call_.kind);
    read_collective({call_, rank_, phase % phases, shown, {phase / phases, rounds_}});
    return phase == 0 ? received_bytes(call_, rank_, static_cast<int>(shown.size())) : 0;
  }

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

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/comm/rounds.h"
#include "src/comm/transport.h"

namespace weft {

/// One rank's view of a collective in which ranks read each other's memory, during one phase of a
/// round.
struct CollectiveRead {
  const Collective& mine;
  int rank;
  int phase;
  /// Each rank's `Collective`, or null where a rank is not there.
  std::span<const void* const> shown;
  Round round = {};

  int size() const { return static_cast<int>(shown.size()); }
  const Collective* of(int r) const {
    return static_cast<const Collective*>(shown[static_cast<size_t>(r)]);
  }
  /// What this round deals with of rank r's part of a piece.
  ElementRange range(const Piece& piece, int r) const {
    return range_of(part_of(mine, piece, size(), r), round);
  }
  /// That range, of rank r's part, in what rank `from` sends as piece i; null when it is not there.
  const void* sent(int from, size_t i, int r) const;
  /// That range of the share that rank `from` has reduced.
  const void* reduced(int from, size_t i) const;
};

/// Phases of a collective: reads that begin when all ranks have ended the one before.
int phases_of(CollectiveKind kind);

/// Does this rank's part of one phase; returns the bytes read from other ranks (for a rank that is
/// not there, those that it would have given).
int64_t read_collective(const CollectiveRead& read);

int64_t read_broadcast(const CollectiveRead& read);
int64_t read_all_gather(const CollectiveRead& read);
int64_t read_gather(const CollectiveRead& read);
int64_t read_scatter(const CollectiveRead& read);
int64_t read_all_to_all(const CollectiveRead& read);
int64_t read_reduce_scatter(const CollectiveRead& read);
int64_t read_all_reduce(const CollectiveRead& read);

/// Copies elements of the piece's dtype, on its device, unless they are there already: all, or some
/// of a part of `of`.
void copy_elements(const Piece& piece, void* to, const void* from, int64_t count, int64_t of);
inline void copy_elements(const Piece& piece, void* to, const void* from, int64_t count) {
  copy_elements(piece, to, from, count, count);
}

/// What a rank finds out about another one while it reads, though their calls had equal signatures.
struct PeerMismatch {
  int rank;
  std::string text;
};

/// A reader that runs `read_collective`, the phases of each round.
class CollectiveReader : public ExchangeReader {
 public:
  CollectiveReader(const Collective& call, int rank) : call_(call), rank_(rank) {}
  int rounds(std::span<const void* const> shown) final;
  int64_t read(int phase, std::span<const void* const> shown) final {
    const int phases = phases_of(call_.kind);
    return read_collective({call_, rank_, phase % phases, shown, {phase / phases, rounds_}});
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

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/comm/transport.h"

namespace weft {

/// One rank's view of a collective in which ranks read each other's memory, during one phase.
struct CollectiveRead {
  const Collective& mine;
  int rank;
  int phase;
  /// Each rank's `Collective`, or null where a rank is not there.
  std::span<const void* const> shown;

  int size() const { return static_cast<int>(shown.size()); }
  const Collective* of(int r) const {
    return static_cast<const Collective*>(shown[static_cast<size_t>(r)]);
  }
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

/// The elements of a piece that one rank reduces.
struct ReducedRange {
  int64_t begin;
  int64_t count;
};

/// Rank r's share of an all_reduce: whole cache lines, so that ranks do not write the same one.
ReducedRange share_of(int64_t elements, int ranks, int rank);

/// Elements before rank r's part.
int64_t part_offset(std::span<const int64_t> counts, int rank);

/// Copies elements of the piece's dtype, on its device, unless they are there already.
void copy_elements(const Piece& piece, void* to, const void* from, int64_t count);

/// What a rank finds out about another one while it reads, though their calls had equal signatures.
struct PeerMismatch {
  int rank;
  std::string text;
};

/// A reader that runs `read_collective`.
class CollectiveReader : public ExchangeReader {
 public:
  CollectiveReader(const Collective& call, int rank) : call_(call), rank_(rank) {}
  int64_t read(int phase, std::span<const void* const> shown) final {
    return read_collective({call_, rank_, phase, shown});
  }

 private:
  const Collective& call_;
  int rank_;
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

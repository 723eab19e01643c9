// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "src/comm/transport.h"

namespace weft {

/// Processes see of each other what lies in memory that they share. What a large collective reads
/// elsewhere is copied there in rounds, to two halves in turn: while the others read the one, the
/// owner fills the other. A round deals with the same share of each part of each piece.
struct Round {
  int index = 0;
  int count = 1;
};

/// Elements of a part or of a piece.
struct ElementRange {
  int64_t begin;
  int64_t count;
};

/// What a round deals with of a part of that many elements: whole cache lines.
ElementRange range_of(int64_t part, const Round& round);
/// The most that any round does.
int64_t most_of(int64_t part, int rounds);

/// Rank r's share of an all_reduce: whole cache lines, so that ranks do not write the same one.
ElementRange share_of(int64_t elements, int ranks, int rank);

/// Elements before rank r's part.
int64_t part_offset(std::span<const int64_t> counts, int rank);

/// True when what a rank sends are the parts of all ranks; else it is one part.
bool sends_all_parts(CollectiveKind kind);
/// Elements of the part of a piece that is for or from that rank.
int64_t part_of(const Collective& call, const Piece& piece, int ranks, int rank);

/// The rounds of a call in a group of that size if one of its ranks needs them: the same on all
/// ranks, so that none has to be told. 1: too little to begin with, or an all_to_all, of which the
/// ranks do not know each other's counts.
int rounds_of(const Collective& call, int ranks);

}  // namespace weft

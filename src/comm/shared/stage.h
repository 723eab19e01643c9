// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "src/comm/rounds.h"
#include "src/comm/transport.h"

namespace weft {

/// Where one rank copies what it sends in a collective of several rounds, so that other processes
/// see it: two halves, which hold the rounds in turn, and what it reduces in a round of an
/// all_reduce.
class Stage {
 public:
  /// `call` lives as long as this.
  Stage(const Collective& call, int ranks, int rank);

  /// What it needs, and gets before all else.
  size_t bytes() const { return 2 * half_bytes_ + reduced_bytes_; }
  void place_at(std::byte* memory) { memory_ = memory; }

  /// The copy of a call that others are shown leads here.
  void lead_here(Collective& shown, Piece* pieces) const;
  /// Shows what this rank sends in a round. All have read the one before the last.
  void fill(int round) const;
  /// Shows what it has reduced in a round.
  void fill_reduced(int round) const;

 private:
  /// Bytes of the places of a piece.
  size_t half_of(const Piece& piece) const;
  size_t reduced_of(const Piece& piece) const;
  void fill_piece(const Piece& piece, const Round& round, std::byte* to) const;

  const Collective& call_;
  const int ranks_;
  const int rank_;
  const int rounds_;
  size_t half_bytes_ = 0;
  size_t reduced_bytes_ = 0;
  std::byte* memory_ = nullptr;
};

}  // namespace weft

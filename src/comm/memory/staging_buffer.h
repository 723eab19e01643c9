// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "src/comm/rounds.h"
#include "src/comm/transport.h"

namespace weft {

/// The shared memory into which one rank copies what it sends in a collective of several rounds:
/// two halves, which the rounds use alternately, and the elements that it reduces in a round of an
/// all_reduce.
class StagingBuffer {
 public:
  /// `call` lives as long as this.
  StagingBuffer(const Collective& call, int ranks, int rank);

  /// The bytes that it needs, to be passed to `place_at` first.
  size_t bytes() const { return 2 * half_bytes_ + reduced_bytes_; }
  void place_at(std::byte* memory) { memory_ = memory; }

  /// Makes the published copy of a call point here.
  void lead_here(Collective& shown, Piece* pieces) const;
  /// Copies what this rank sends in a round. All ranks have read the round before the previous one.
  void fill(int round) const;
  /// Copies what this rank has reduced in a round.
  void fill_reduced(int round) const;

 private:
  /// Bytes of a piece in one half, and of its reduced elements.
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

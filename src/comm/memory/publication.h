// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "src/comm/memory/memory_group.h"
#include "src/comm/rounds.h"
#include "src/comm/transport.h"
#include "weft/export.h"
#include "weft/storage.h"

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

/// Publishes one call of one rank to the other ranks. Threads share all memory and read the call
/// itself. Processes read a copy of it in memory that all have mapped at the same addresses, with
/// copies of the elements in private memory. Must live as long as the others read.
///
/// When ranks share cores, each wait costs time slices of the others, so a small call is
/// published eagerly: copied with its elements to the buffer of its slot, where it stays until the
/// slot is reused. Its rank waits for no reader. With one core a rank the copy would cost as much
/// as the wait.
class Publication : NotCopied {
 public:
  /// `sequence` is 0 for messages, which have no slot.
  Publication(const MemoryGroup& group, int rank, uint64_t sequence)
      : group_(group), rank_(rank), sequence_(sequence) {}

  /// Returns what the other ranks are to read: a Collective, or an array of blocks.
  const void* publish(const Collective& call) {
    is_eager_ = group_.world->is_crowded() && fits_room(call);
    return is_eager_ || group_.ranks_are_processes() ? shared(call) : &call;
  }
  const void* publish(const Exchange& call) {
    is_eager_ = group_.world->is_crowded() && fits_room(call);
    return is_eager_ || group_.ranks_are_processes() ? shared(call) : call.blocks.data();
  }
  /// All published data is in the slot's buffer.
  bool is_eager() const { return is_eager_; }
  /// Publishes what this rank made in the previous phase, before the others may begin `phase` (from
  /// 1 on).
  void update(int phase) {
    if (!late_.empty()) copy_late(phase);
    if (staging_) next_round(phase);
  }
  /// Returns where the others see the `bytes` at `data`: in place or copied.
  const void* visible(const void* data, size_t bytes) {
    return group_.ranks_are_processes() ? shared_bytes(data, bytes) : data;
  }

 private:
  /// Elements that are made in one phase and read in the next.
  struct Late {
    int phase;
    MemoryBlock from;
    MemoryBlock to;
  };
  bool fits_room(const Collective& call) const;
  bool fits_room(const Exchange& call) const;
  /// Returns true when the other processes see the data in place.
  bool is_seen(const void* data) const;
  const void* shared_bytes(const void* data, size_t bytes);
  const void* shared(const Collective& call);
  const void* shared(const Exchange& call);
  MemoryBlock shared_block(const MemoryBlock& block, int phase);
  Piece shared_piece(const Collective& call, const Piece& piece);
  const void* late_part(const Piece& piece);
  bool needs_rounds(const Collective& call) const;
  void next_round(int phase);
  /// Allocates memory that the others see, for the life of this object.
  void* hold(size_t bytes);
  /// As `hold`, but in the slot's buffer while it has space.
  void* place(size_t bytes);
  void copy_late(int phase);

  const MemoryGroup& group_;
  const int rank_;
  const uint64_t sequence_;
  bool is_eager_ = false;
  size_t placed_ = 0;
  std::vector<Ref<Storage>> held_;
  std::vector<Late> late_;
  /// For a call in rounds of `phases_` phases each.
  std::optional<StagingBuffer> staging_;
  int phases_ = 1;
};

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "src/comm/memory/memory_group.h"
#include "src/comm/transport.h"
#include "weft/export.h"
#include "weft/storage.h"

namespace weft {

class StagingBuffer;

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
  template <class Call> const void* publish(const Call& call) {
    is_eager_ = group_.world->is_crowded() && fits_room(call);
    return is_eager_ || group_.ranks_are_processes() ? shared(call) : in_place(call);
  }
  /// All published data is in the slot's buffer.
  bool is_eager() const { return is_eager_; }
  /// Publishes what this rank made in the previous phase, before the others may begin `phase` (from
  /// 1 on).
  void update(int phase);
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
  static const void* in_place(const Collective& call) { return &call; }
  static const void* in_place(const Exchange& call) { return call.blocks.data(); }
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
  /// Allocates memory that the others see, for the life of this object.
  void* hold(size_t bytes);
  /// As `hold`, but in the slot's buffer while it has space.
  void* place(size_t bytes);

  const MemoryGroup& group_;
  const int rank_;
  const uint64_t sequence_;
  bool is_eager_ = false;
  size_t placed_ = 0;
  std::vector<Ref<Storage>> held_;
  std::vector<Late> late_;
  /// For a call in rounds of `phases_` phases each.
  std::shared_ptr<StagingBuffer> staging_;
  int phases_ = 1;
};

}  // namespace weft

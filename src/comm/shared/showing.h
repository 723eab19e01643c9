// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "src/comm/memory_group.h"
#include "src/comm/shared/stage.h"
#include "src/comm/transport.h"
#include "weft/storage.h"

namespace weft {

/// What one call of one rank shows the other ranks. Threads see everything, and are shown the call
/// itself; processes are shown a copy of it in memory that they all have at the same addresses, and
/// copies of those elements that lie elsewhere. Lives as long as the others read.
///
/// Where ranks share cores, so that each wait costs turns of the others, a small call is shown
/// eagerly: copied to the room of its slot, elements included, where it stays until the slot is
/// used again. Its rank waits for no reader. With a core a rank the copy costs what the wait does.
class Showing {
 public:
  /// Messages, which have no slot, say 0.
  Showing(const MemoryGroup& group, int rank, uint64_t sequence)
      : group_(group), rank_(rank), sequence_(sequence) {}
  Showing(const Showing&) = delete;
  Showing& operator=(const Showing&) = delete;

  /// What the others are led to: a Collective, or an array of blocks.
  const void* show(const Collective& call) {
    is_eager_ = group_.world->is_crowded() && fits_room(call);
    return is_eager_ || group_.heap ? shared(call) : &call;
  }
  const void* show(const Exchange& call) {
    is_eager_ = group_.world->is_crowded() && fits_room(call);
    return is_eager_ || group_.heap ? shared(call) : call.blocks.data();
  }
  /// All that is shown lies in the room.
  bool is_eager() const { return is_eager_; }
  /// This rank is about to let the others begin that phase, from 1 on: shows what it made in the
  /// one before.
  void update(int phase) {
    if (!late_.empty()) copy_late(phase);
    if (stage_) next_round(phase);
  }
  /// `bytes` at `data` as the others see them: in place or copied.
  const void* visible(const void* data, size_t bytes) {
    return group_.heap ? shared_bytes(data, bytes) : data;
  }

 private:
  /// Elements that are made in a phase and read in the next one.
  struct Late {
    int phase;
    Block from;
    Block to;
  };
  bool fits_room(const Collective& call) const;
  bool fits_room(const Exchange& call) const;
  /// They see it where it is.
  bool is_seen(const void* data) const;
  const void* shared_bytes(const void* data, size_t bytes);
  const void* shared(const Collective& call);
  const void* shared(const Exchange& call);
  Block shared_block(const Block& block, int phase);
  Piece shared_piece(const Collective& call, const Piece& piece);
  const void* late_part(const Piece& piece);
  bool needs_rounds(const Collective& call) const;
  const void* staged(const Collective& call);
  void next_round(int phase);
  /// Memory that the others see, for the life of this object.
  void* hold(size_t bytes);
  /// The same, in the slot's room as long as there is some.
  void* place(size_t bytes);
  void copy_late(int phase);

  const MemoryGroup& group_;
  const int rank_;
  const uint64_t sequence_;
  bool is_eager_ = false;
  size_t placed_ = 0;
  std::vector<Ref<Storage>> held_;
  std::vector<Late> late_;
  /// Of a call in rounds, of so many phases each.
  std::optional<Stage> stage_;
  int phases_ = 1;
};

}  // namespace weft

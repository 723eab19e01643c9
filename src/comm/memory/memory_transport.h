// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "src/comm/memory/memory_group.h"
#include "src/comm/transport.h"
#include "src/comm/wait/waitable.h"
#include "weft/storage.h"

namespace weft {

/// A receive that has begun; receives are kept in the order of the calls.
struct ExpectedMessage {
  uint64_t number;
  int from;
  int tag;
};

/// One rank's end of a group whose ranks read each other's memory: threads of one process, or
/// processes of one host.
class MemoryTransport final : public Transport {
 public:
  MemoryTransport(const std::shared_ptr<MemoryGroup>& group, int rank);

  /// Ranks that are processes do not see each other's GPU memory.
  bool in_memory(DeviceKind kind) const override {
    return kind != DeviceKind::cuda || !group_.ranks_are_processes();
  }
  Work start(const Collective& call) override;
  void run(const Collective& call) override;
  void exchange(const Exchange& call, ExchangeReader& reader) override;
  std::shared_ptr<Transport> subgroup(std::span<const int> ranks, std::string name) override;

  const MemoryGroup& group() const { return group_; }
  /// Returns the number of a new collective. Waits until its slot is free, and throws as a wait
  /// does.
  uint64_t next_collective();
  /// Records that others still read the slot of collective `sequence` until all reach `progress`.
  void leave_to_readers(uint64_t sequence, uint64_t progress) {
    readers_[sequence % MemoryGroup::kSlots] = progress;
  }
  uint64_t next_message() { return ++messages_; }
  /// The buffer for the pointers that `ExchangeReader::read` receives.
  std::vector<const void*>& published() { return published_; }

  /// The numbers of messages to one rank: begun, and posted.
  struct Sent {
    uint64_t begun = 0;
    uint64_t posted = 0;
  };
  Sent& sent_to(int rank) { return sent_[static_cast<size_t>(rank)]; }
  std::vector<ExpectedMessage>& expected() { return expected_; }

 private:
  void await_readers(uint64_t sequence);

  const MemoryGroup& group_;
  uint64_t collectives_ = 0;
  /// By slot: the progress at which all ranks have read what the last call published there; 0: they
  /// had when the call ended.
  std::array<uint64_t, MemoryGroup::kSlots> readers_{};
  uint64_t messages_ = 0;
  std::vector<const void*> published_;
  std::vector<Sent> sent_;
  std::vector<ExpectedMessage> expected_;
};

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
    is_eager_ = group_.world->is_crowded() && fits_eager_buffer(call);
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
  bool fits_eager_buffer(const Collective& call) const;
  bool fits_eager_buffer(const Exchange& call) const;
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
  void* allocate(size_t bytes);

  const MemoryGroup& group_;
  const int rank_;
  const uint64_t sequence_;
  bool is_eager_ = false;
  size_t used_ = 0;
  std::vector<Ref<Storage>> held_;
  std::vector<Late> late_;
  /// Serves a call in rounds of `phases_` phases each.
  std::shared_ptr<StagingBuffer> staging_;
  int phases_ = 1;
};

/// Takes the earliest posted message with that tag; null when there is none.
PostedMessage* take_message(std::span<PostedMessage> messages, int tag);

/// Starts a send or a receive: the receiver copies from the sender's memory.
Work start_message(MemoryTransport& transport, const Collective& call);

/// A pending call of a rank that sees the memory of the others. Only its own rank advances it.
class PendingWork : public Waitable {
 public:
  PendingWork(const MemoryGroup& group, int rank, uint64_t sequence)
      : Waitable(group, rank, sequence) {
    link();
  }

 protected:
  const MemoryGroup& group() const { return static_cast<const MemoryGroup&>(members_); }
  /// Yields until `uses()` is false or the rank has ended.
  template <class Uses> void wait_while(int rank, Uses uses) const noexcept {
    const int other = members_.world_rank(rank);
    const auto is_over = [&] { return !uses() || world().has_ended(other); };
    while (!wait_until(world().spins(), world().reader_deadline(), is_over))
      world().on_stuck_reader(other);
  }
};

}  // namespace weft

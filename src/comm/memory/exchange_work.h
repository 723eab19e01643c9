// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/comm/memory/memory_group.h"
#include "src/comm/memory/memory_transport.h"
#include "src/comm/memory/publication.h"
#include "weft/stream.h"

namespace weft {

/// Orders one rank's exchange on GPUs, where the reads are queued on streams. Where the ranks'
/// threads wait for each other, their streams wait for what the other ranks have queued by then; no
/// thread waits for a GPU. Uses the stream that was current at construction. Does nothing for host
/// memory.
class ExchangeOrder {
 public:
  /// For a call whose published memory is on `device`.
  ExchangeOrder(const MemoryGroup& group, int rank, uint64_t sequence, Device device);

  /// Records that the work that makes the published memory is queued.
  void posted();
  /// Makes the stream wait until the others' memory for `phase` is valid: their posts for phase 0,
  /// their reads of the previous phase otherwise. Reads of `phase` may be queued afterwards.
  void await(int phase);
  /// Records that the reads of `phase` are queued.
  void finished(int phase);
  /// Makes the stream wait for all ranks' reads of the last phase; later work may overwrite what
  /// this rank has published.
  void ended(int last);
  /// Makes the current stream wait for the end.
  void join() const;
  /// Returns true when the GPU has reached the end.
  bool is_reached() const { return end_.empty() || end_.is_reached(); }

  /// The stream on which the reads are queued.
  const Stream& stream() const { return stream_; }

 private:
  bool is_queued() const { return device_.kind == DeviceKind::cuda; }
  void mark(int point);
  void check_reach(int other, Device device) const;

  const MemoryGroup& group_;
  const int rank_;
  const uint64_t sequence_;
  const Device device_;
  Stream stream_;
  Event end_;
};

/// A pending exchange in memory, which every collective is: each rank publishes what the others
/// read, and when all have published, reads what it needs, phase by phase.
class ExchangeWork : public PendingWork {
 public:
  /// Publishes at once, unless the world is aborted. `reader` is used until the work is done; it is
  /// null when there are no phases.
  ExchangeWork(MemoryTransport& transport, const Exchange& call, ExchangeReader* reader);
  ExchangeWork(MemoryTransport& transport, const Collective& call, ExchangeReader* reader);

 protected:
  bool advance() final;
  std::vector<int> missing() const final;
  const char* missed(int rank) const final;
  std::string words() const final;
  void retreat() noexcept final;
  void joined() final { order_.join(); }
  bool is_complete() const final { return order_.is_reached(); }

 private:
  template <class Call, class Parts>
  ExchangeWork(MemoryTransport& transport, const Call& call, const Parts& parts, int phases,
               ExchangeReader* reader);
  template <class Call> [[noreturn]] void refuse(const Call& call, const Claim& claim);
  void post(const void* shown);
  uint64_t progress_at(uint64_t within) const { return sequence() * kProgressRange + within; }
  /// This rank's progress, which all ranks must reach before it continues.
  uint64_t reached() const { return progress_at(phase_ < 0 ? kPosted : progress_after(phase_)); }
  bool all_have_come();
  void begin_reading();
  void compare_signatures();
  bool may_read();
  bool read_next_phase();
  /// Multiplies the phases by the rounds, which are known once all ranks have published.
  void learn_rounds();
  int64_t read_peers(int phase);
  /// The published pointer of each rank.
  std::span<const void* const> shown();

  MemoryTransport& transport_;
  ExchangeReader* reader_;
  /// The phases of one round; after `learn_rounds`, of all rounds.
  int phases_;
  /// The last phase that this rank has finished; -1: it has only published.
  int phase_ = -1;
  /// All ranks have published eagerly.
  bool reads_rooms_ = false;
  /// The ranks below this one have `reached` it.
  int seen_ = 0;
  Slot& slot_;
  Publication publication_;
  ExchangeOrder order_;
};

}  // namespace weft

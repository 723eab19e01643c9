// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/comm/memory/exchange_order.h"
#include "src/comm/memory/memory_transport.h"
#include "src/comm/memory/pending.h"
#include "src/comm/memory/showing.h"

namespace weft {

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

 private:
  template <class Call>
  void publish(const Call& call);
  void post(const void* shown);
  uint64_t stage(uint64_t within) const { return sequence() * kStages + within; }
  /// The stage that all ranks must reach before this one continues.
  uint64_t awaited() const { return stage(phase_ < 0 ? kPosted : finished_stage(phase_)); }
  bool all_have_come();
  void begin_reading();
  void compare_signatures();
  bool may_read();
  bool read_next_phase();
  int64_t read_peers(int phase);
  /// The published pointer of each rank.
  std::span<const void* const> shown();

  MemoryTransport& transport_;
  ExchangeReader* reader_;
  /// The phases of all rounds; known once all ranks have published.
  int phases_;
  /// The last phase that this rank has finished; -1: it has only published.
  int phase_ = -1;
  /// All ranks have published eagerly.
  bool reads_rooms_ = false;
  /// The ranks below this one have reached the awaited stage.
  int seen_ = 0;
  Slot& slot_;
  Showing showing_;
  ExchangeOrder order_;
};

}  // namespace weft

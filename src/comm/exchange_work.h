// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/comm/exchange_order.h"
#include "src/comm/memory_transport.h"
#include "src/comm/pending.h"
#include "src/comm/shared/showing.h"

namespace weft {

/// An exchange under way in memory, and every collective is one: each rank shows what others read
/// of it, and when all have done so reads what it needs, phase by phase.
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
  std::string title() const final;
  void retreat() noexcept final;
  void joined() final { order_.join(); }

 private:
  template <class Call>
  void publish(const Call& call);
  void post(const void* shown);
  uint64_t stage(uint64_t within) const { return sequence() * kStages + within; }
  /// How far all ranks must be before this one goes on.
  uint64_t awaited() const { return stage(phase_ < 0 ? kPosted : finished_stage(phase_)); }
  bool all_have_come();
  void begin_reading();
  void compare_signatures();
  [[noreturn]] void fail_diverged(int other);
  bool may_read();
  bool read_next_phase();
  int64_t read_peers(int phase);
  /// What each rank shows.
  std::span<const void* const> shown();
  std::string prefix() const;

  MemoryTransport& transport_;
  ExchangeReader* reader_;
  /// Of all rounds, when all have come.
  int phases_;
  /// The phase this rank has ended last; -1: it has published.
  int phase_ = -1;
  /// All ranks show theirs eagerly.
  bool reads_rooms_ = false;
  /// Ranks before this one are as far as awaited.
  int seen_ = 0;
  Slot& slot_;
  Showing showing_;
  ExchangeOrder order_;
};

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/comm/memory/exchange_order.h"
#include "src/comm/memory/memory_transport.h"
#include "src/comm/memory/publication.h"

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

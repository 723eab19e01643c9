// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "src/comm/memory_group.h"
#include "weft/stream.h"

namespace weft {

/// One rank's exchange on GPUs, whose work is queued: where the ranks' threads wait for each other,
/// their streams wait for what the others have queued by then, and no thread waits for a GPU. All
/// is in the order of the stream that was current when this was made. Nothing where memory is the
/// host's.
class ExchangeOrder {
 public:
  /// Of a call that shows memory on `device`.
  ExchangeOrder(const MemoryGroup& group, int rank, uint64_t sequence, Device device);

  /// What this rank shows is queued.
  void posted();
  /// All have posted (phase 0), or queued their reads of the phase before: this rank may queue its
  /// reads of `phase`.
  void await(int phase);
  /// The reads of `phase` are queued.
  void finished(int phase);
  /// All have queued their reads of the last phase: what this rank shows may be written after them.
  void ended(int last);
  /// The current stream goes on after the end.
  void join() const;

  /// Where reads are queued.
  const Stream& stream() const { return stream_; }

 private:
  bool is_queued() const { return device_.kind == DeviceKind::cuda; }
  void mark(int point);
  void await_others(int point);
  void check_reach(int other, Device device) const;

  const MemoryGroup& group_;
  const int rank_;
  const uint64_t sequence_;
  const Device device_;
  Stream stream_;
  Event end_;
};

}  // namespace weft

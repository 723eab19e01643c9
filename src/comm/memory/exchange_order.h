// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "src/comm/memory/memory_group.h"
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

}  // namespace weft

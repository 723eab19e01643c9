// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/comm/mpi/wire.h"

namespace weft {

class MpiEngine;
class MpiWork;

/// Segments sent to or received from one process, in order under one tag, a few at a time.
struct MpiStream {
  bool sends;
  /// Rank in the world.
  int peer;
  int tag;
  MpiSegments segments;
  /// The number of segments that may be posted.
  size_t allowed;
  size_t posted = 0;
  size_t done = 0;

  bool is_done() const { return done == segments.size(); }
};

/// The streams of one call.
class MpiStreams {
 public:
  /// Starts the allowed segments; returns the stream's number.
  size_t add(MpiEngine& engine, MpiWork& owner, MpiStream stream);
  /// A completed transfer: its stream and segment.
  struct Ended {
    size_t stream;
    size_t segment;
  };
  Ended ended(MpiEngine& engine, MpiWork& owner, uint64_t token);
  void allow(MpiEngine& engine, MpiWork& owner, size_t stream, size_t segments);
  size_t count() const { return streams_.size(); }
  bool all_done() const { return unfinished_ == 0; }
  bool is_done_with(int peer) const;

 private:
  void pump(MpiEngine& engine, MpiWork& owner, size_t number);

  std::vector<MpiStream> streams_;
  size_t unfinished_ = 0;
};

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/comm/mpi/wire.h"

namespace weft {

class MpiEngine;
class MpiWork;

/// Segments that go to or come from one process, one after the other under one tag, a few at a
/// time.
struct MpiStream {
  bool sends;
  /// Of the world.
  int peer;
  int tag;
  MpiSegments segments;
  /// Segments that may be posted.
  size_t allowed;
  size_t posted = 0;
  size_t done = 0;

  bool is_done() const { return done == segments.size(); }
};

/// The streams of one call.
class MpiStreams {
 public:
  /// Begins with what is allowed; returns its number.
  size_t add(MpiEngine& engine, MpiWork& owner, MpiStream stream);
  /// A transfer ended: of which stream, which segment.
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

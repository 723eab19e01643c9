// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "src/comm/mpi/mpi_transport.h"
#include "src/comm/mpi/routing.h"
#include "src/comm/wait/waitable.h"

namespace weft {

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

/// A call of one rank in progress. Messages advance it on whichever thread polls the engine.
/// Derived classes implement the kinds of calls.
class MpiWork : public Waitable {
 public:
  /// `number` is that of the collective, or of the message with the mark of messages.
  MpiWork(MpiTransport& transport, uint64_t number);

  void wait() final;
  void drop() noexcept final;

  // The caller of all following functions holds the engine's lock.

  /// Starts the call.
  void start() noexcept;
  /// Handles a short message for this call.
  void receive(const MpiHeader& header, MpiPayload payload) noexcept;
  /// Handles the end of a transfer of this call.
  void transferred(uint64_t token) noexcept;

 protected:
  virtual void post() = 0;
  virtual void take(const MpiHeader& header, MpiPayload payload) = 0;
  virtual void moved(uint64_t token) = 0;
  /// True once all calls have arrived: `awaited_ranks` then returns the ranks with incomplete
  /// transfers, before that those that have not called.
  virtual bool has_begun() const = 0;
  /// The ranks of the group for which this call, which is not over, waits.
  virtual std::vector<int> awaited_ranks() const = 0;
  /// The action missing from a rank that has not called: "call it".
  virtual const char* uncalled() const = 0;

  /// Takes the messages to that address from now on, until the call is complete.
  void join(const MpiAddress& address);
  /// Marks the call as complete.
  void mark_over() noexcept;
  /// Adds bytes from other ranks; they count for the communicator when the caller sees the end.
  void add_received(int64_t bytes) { received_ += bytes; }

  MpiEngine& engine() const { return transport_.engine(); }
  const Members& group() const { return transport_.group(); }
  int size() const { return transport_.size(); }

 private:
  template <class Step> void step(Step&& next) noexcept;
  bool advance() final;
  std::vector<int> missing() const final;
  const char* missed(int) const final { return has_begun() ? "finish it" : uncalled(); }
  std::string departure(int rank) const final;
  bool heeds_departures() const final;
  std::chrono::milliseconds grace(const std::vector<int>& ranks) const final;
  void retreat() noexcept final;

  MpiTransport& transport_;
  const std::shared_ptr<Transport> keep_;
  bool over_ = false;
  /// A transfer has completed since the last poll of the caller.
  bool has_moved_ = false;
  int64_t received_ = 0;
  MpiAddress address_;
  std::exception_ptr failure_;
};

}  // namespace weft

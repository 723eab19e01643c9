// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/comm/mpi/wire.h"
#include "src/comm/transport.h"
#include "src/comm/wait/waitable.h"

namespace weft {

class MpiEngine;

/// One rank's end of a group whose ranks are processes on any hosts; they communicate by MPI.
class MpiTransport final : public Transport {
 public:
  MpiTransport(std::shared_ptr<MpiEngine> engine, Members group, int rank);

  bool in_memory(DeviceKind) const override { return false; }
  Work start(const Collective& call) override;
  std::shared_ptr<Transport> subgroup(std::span<const int> ranks, std::string name) override;
  void abort(const std::string& reason) override;

  MpiEngine& engine() const { return *engine_; }

 private:
  std::shared_ptr<MpiEngine> engine_;
  uint64_t collectives_ = 0;
  uint64_t messages_ = 0;
};

/// Returns this process's end of the group of all processes; `hosts[r]` is the host of rank r. A
/// different `number` creates a separate group.
std::shared_ptr<Transport> mpi_world(const std::shared_ptr<MpiEngine>& engine,
                                     std::vector<int> hosts, uint64_t number = 0);

class MpiWork;

/// Delivers short messages to the works they are for; either may come first.
class MpiRouting {
 public:
  /// Delivers messages of that address to `work`; of sends, only the next undelivered one.
  void join(const MpiAddress& address, MpiWork& work);
  void leave(const MpiWork& work);
  void route(const MpiHeader& header, MpiPayload payload);

 private:
  struct Message {
    MpiHeader header;
    std::vector<std::byte> payload;
  };
  using Waiting = std::pair<MpiAddress, MpiWork*>;

  /// In the order of joining; no message below is for any of them.
  std::vector<Waiting> waiting_;
  std::vector<Message> early_;
};

/// A call of one rank in progress. Messages advance it on whichever thread polls the engine. It
/// moves user memory in streams: segments sent to or received from one rank, in order under one
/// tag, a few at a time.
class MpiWork : public Waitable {
 protected:
  /// The contents of a stream: data of which all segments may be posted at once, blocks to be
  /// reduced, or results of this rank, which are allowed as they come.
  enum class MpiStream : uint8_t { data, blocks, results };

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
  /// Handles the end of the segment of that number of a stream.
  virtual void moved(MpiStream stream, size_t segment) = 0;
  /// The ranks of the group for which this call, which is not over, waits.
  virtual std::vector<int> awaited_ranks() const = 0;
  /// The action missing from a rank that has not called: "call it".
  virtual const char* uncalled() const = 0;

  /// Takes the messages to that address from now on, until the call is complete.
  void join(const MpiAddress& address);
  /// Adds a stream to or from `peer`, of which only the first `allowed` segments may be posted.
  void add_stream(bool sends, int peer, int tag, MpiSegments segments,
                  MpiStream kind = MpiStream::data, size_t allowed = SIZE_MAX);
  /// Allows so many segments of each stream of that kind.
  void allow(MpiStream kind, size_t segments);
  bool all_moved() const { return unfinished_ == 0; }
  /// True when all streams to and from `peer` are complete.
  bool has_moved(int peer) const;
  /// Marks the call as complete.
  void mark_over() noexcept;
  /// Adds bytes from other ranks; they count for the communicator when the caller sees the end.
  void add_received(int64_t bytes) { received_ += bytes; }

  MpiEngine& engine() const { return transport_.engine(); }
  const Members& group() const { return members_; }
  int size() const { return transport_.size(); }

  /// True once all calls have arrived: `awaited_ranks` then returns the ranks with incomplete
  /// transfers, before that those that have not called.
  bool begun_ = false;

 private:
  struct Stream {
    bool sends;
    int peer;
    int tag;
    MpiSegments segments;
    MpiStream kind;
    size_t allowed;
    size_t posted = 0;
    size_t done = 0;

    bool is_done() const { return done == segments.size(); }
  };

  template <class Step> void step(Step&& next) noexcept;
  /// Posts the segments of a stream that may be posted.
  void pump(size_t number);
  bool advance() final;
  std::vector<int> missing() const final;
  const char* missed(int) const final { return begun_ ? "finish it" : uncalled(); }
  std::string departure(int rank) const final;
  bool heeds_departures() const final;
  std::chrono::milliseconds grace(const std::vector<int>& ranks) const final;
  void await_release() noexcept final;

  MpiTransport& transport_;
  const std::shared_ptr<Transport> keep_;
  std::vector<Stream> streams_;
  size_t unfinished_ = 0;
  bool over_ = false;
  /// A transfer has completed since the last poll of the caller.
  bool has_progressed_ = false;
  int64_t received_ = 0;
  std::exception_ptr failure_;
};

/// A call of that number of collectives or messages between processes, not started yet.
std::unique_ptr<MpiWork> mpi_work(MpiTransport& transport, const Collective& call, uint64_t number);

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "src/comm/mpi/mpi_transport.h"
#include "src/comm/world.h"
#include "weft/export.h"

namespace weft {

class MpiBulk;
class MpiShortMessages;
class MpiSession;
class Termination;

/// What calls MPI for one world of this process. A thread polls while no caller waits, so that
/// calls progress on their own.
class MpiEngine : NotCopied {
 public:
  /// Called by all processes of the session, whose ranks are those of `world`. The world's failures
  /// are sent to all processes, and theirs abort it. A guest of a program that uses MPI below
  /// MPI_THREAD_MULTIPLE has no thread: calls progress only while the rank is in one of them.
  MpiEngine(std::unique_ptr<MpiSession> session, std::shared_ptr<World> world);
  ~MpiEngine();

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::shared_ptr<World>& world() const { return world_; }
  /// Ends this rank's communication; must come after the rank has reported any failure. When all
  /// ranks have called it, finalises MPI, unless the program does, and returns. When the world is
  /// aborted, notifies the others, waits half a second, and does not finalise MPI, because that
  /// would hang.
  void end();
  /// The first part of `end`, which does not wait: tells all ranks that this one has ended.
  void leave();
  /// Returns true when all ranks have left; no other function may then be called. Does not wait.
  bool try_end();
  /// After a failure MPI may still write into the memory of this engine.
  bool has_failed() const { return silent_; }
  /// Throws std::runtime_error when this thread may not call MPI, or the world has ended.
  void check_call() const;

  // Members that works use.

  using Lock = std::unique_lock<std::mutex>;
  [[nodiscard]] Lock lock() { return Lock(mutex_); }
  /// While a caller waits, the engine's thread does not poll.
  class Caller : NotCopied {
   public:
    explicit Caller(MpiEngine& engine) : engine_(engine) { ++engine.callers_; }
    ~Caller();

   private:
    MpiEngine& engine_;
  };
  /// True when a poll is a system call, of a session without MPI.
  bool polls_sockets() const { return polls_sockets_; }
  /// True while large data is in transit.
  bool is_moving() const { return moving_.load(std::memory_order_relaxed); }
  /// The caller of this and all following functions holds the lock. Advances all works.
  void poll() noexcept;
  void add_work();
  void remove_work() { --works_; }
  /// True when the rank has ended and all messages it sent before have arrived.
  bool has_sent_all(int rank) const { return ended_[static_cast<size_t>(rank)] != 0; }
  /// Why the connection to a rank has ended before the rank did, as in "is gone (...)"; else empty.
  std::string loss_of(int rank) const;
  /// Sends a short message, which is copied.
  void send(int to, const MpiHeader& header, MpiPayload words = {}, const MpiSegments& data = {});
  void transfer(const MpiTransfer& transfer, MpiWork& owner, uint64_t token);
  MpiRouting& routing() { return routing_; }
  /// Returns the first of two tags that are unique for this rank as a receiver.
  int new_tags();
  uint64_t new_message() { return ++messages_; }

 private:
  void run();
  void await_unattended_work(Lock& lock);
  void look_at_termination();
  void pause_between_polls(Lock& lock);
  void take(int from, const MpiHeader& header, MpiPayload payload);
  void take_failure(const MpiHeader& header, MpiPayload payload);
  void send_failure();
  int gone_rank() const;
  std::string end_in_words(int gone) const;
  WorldFailure death_of(int gone) const;
  void look_for_gone_ranks();
  void stop_thread();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<MpiSession> session_;
  const int rank_;
  const int size_;
  const std::shared_ptr<World> world_;
  std::unique_ptr<MpiShortMessages> short_messages_;
  std::unique_ptr<MpiBulk> bulk_;
  MpiRouting routing_;
  std::vector<uint8_t> ended_;
  int greatest_tag_;
  const bool polls_sockets_;
  int next_tag_ = 1;
  uint64_t messages_ = 0;
  /// Calls in progress, and callers that wait for one.
  int works_ = 0;
  std::atomic<int> callers_{0};
  std::atomic<bool> moving_{false};
  /// After a failure MPI is not called any more: it would write to memory that its owner has freed.
  bool silent_ = false;
  bool asleep_ = false;
  bool stopping_ = false;
  std::chrono::microseconds nap_{100}, patience_{100};
  std::unique_ptr<Termination> termination_;
  std::chrono::steady_clock::time_point asked_at_{};
  /// At the end: when a process was first found to have exited without an end message.
  std::chrono::steady_clock::time_point first_gone_{};
  std::thread thread_;
};

}  // namespace weft

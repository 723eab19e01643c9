// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/error.h"
#include "weft/export.h"

namespace weft {

class MemoryGroup;
struct Members;

/// The cure where processes of a job do not connect.
inline constexpr const char* kAllConnect =
    "; all processes of the job call connect, and world.split groups those that work together";

/// The number of cores that this process may use.
int available_cores();

/// Prints why and ends this process at once; given by `launch`; must not return. Called when a
/// thread does not end, another rank still reads this one's memory, or MPI does not begin.
using EndProcess = void (*)(const std::string& why) noexcept;

/// The failure that ended a world early.
struct WorldFailure {
  /// The rank that found it: its exception is the cause, and those of other ranks are consequences.
  int found_by = -1;
  /// The rank at fault, or -1.
  int rank = -1;
  std::string text = {};
  /// True when a whole deadline has already passed.
  bool was_late = false;
};

/// The state of a world that all its ranks see, be they threads or processes. All zeros: a world
/// that has begun.
struct WorldState {
  /// Set by the first rank that fails, which writes the failure and then sets `aborted`.
  std::atomic<uint32_t> failing{0};
  std::atomic<uint32_t> aborted{0};
  /// The ranks of a WorldFailure, + 1.
  int32_t found_by = 0;
  int32_t rank = 0;
  int32_t was_late = 0;
  /// Truncated when too long; empty if the rank that writes it has died.
  std::array<char, 4000> text{};
};

/// The state of one rank that all ranks see. All zeros: a rank that has begun.
struct RankState {
  /// The number of the last run that this rank has ended.
  std::atomic<uint32_t> ended{0};
  /// When the rank last reported that it waits, in milliseconds of a steady clock, modulo 2^32.
  std::atomic<uint32_t> waited_at{0};
};

/// The state shared by ranks that fail together: the deadline, the ended ranks and the first
/// failure.
class World : NotCopied {
 public:
  virtual ~World() = default;

  int ranks() const { return ranks_; }
  std::chrono::milliseconds deadline() const { return deadline_; }
  /// The number of polls before a waiting thread yields its core.
  int spins() const { return spins_; }
  /// Returns true when this host has more ranks than cores for this process.
  bool is_crowded() const { return is_crowded_; }
  /// Moves the waiting thread of `rank`, the caller, to its own core when there are enough for all:
  /// if it shares one with another rank, which the system may allow for a tenth of a second, each
  /// waits while the other runs. Does nothing within 100 ms of the last move.
  void keep_apart(int rank) const;

  bool is_aborted() const { return state_->aborted.load(std::memory_order_seq_cst) != 0; }
  /// Ends the waits of all ranks; only the first failure counts.
  void abort(const WorldFailure& failure, const std::exception_ptr& cause = {});
  /// Aborts the world because a call of `rank` threw `cause`; ignored in a world that has failed
  /// already.
  void abort_for_exception(int rank, const std::exception_ptr& cause) noexcept;
  /// Aborts the world with the failure of a call and returns the error to throw.
  CommError abort_for_call(const WorldFailure& failure, std::string operation, uint64_t number);
  /// The error of a call that ends because the world has failed: "<title>: given up: <failure>".
  CommError echo(const std::string& title, std::string operation, uint64_t number) const;
  /// The failure of an aborted world.
  WorldFailure failure() const;

  /// Records that `rank` makes no more calls in this run.
  virtual void end(int rank);
  /// Begins another run of this rank; all ranks have the same number of runs.
  void begin_run();
  /// Records that `rank` makes no more calls in any run.
  void end_for_good(int rank);
  /// Returns true when the rank makes no more calls.
  bool has_ended(int rank) const { return says_ended(rank) || is_gone(rank); }
  /// Records that `rank`, the caller's, waits for another rank; repeated while it waits.
  void report_waiting(int rank) const;
  /// Returns true when the rank is known to wait: it is not at fault, and names the rank that it
  /// waits for.
  bool waits(int rank) const;
  /// Returns true when the rank's process is known to be gone.
  virtual bool is_gone(int) const { return false; }
  /// Returns true when the rank's process is known to be gone without having ended in order: a rank
  /// says that it has ended before its process is gone.
  bool has_died(int rank) const { return is_gone(rank) && !says_ended(rank); }
  /// How the rank stopped making calls, such as "ended".
  virtual std::string end_in_words(int) const { return "ended"; }

  /// How long a rank of an aborted world may still read the memory of others: at least as long as
  /// any call, but short when a whole deadline has already passed.
  std::chrono::milliseconds reader_deadline() const;
  /// Called when `rank` still reads this rank's memory long after the world was aborted.
  virtual void on_stuck_reader(int) const {}
  /// Returns true when these world ranks see each other's memory, so that they can form a `group`.
  virtual bool shares_memory(std::span<const int>) const { return true; }
  /// The group of these ranks of this world, each of which calls this.
  virtual std::shared_ptr<MemoryGroup> group(Members members) = 0;

 protected:
  /// `state` and `rank_states` are in memory that all ranks see. Waiting ranks spin for as long as
  /// suits `sharing` ranks on these cores.
  World(int ranks, std::chrono::milliseconds deadline, int sharing,
        std::shared_ptr<WorldState> state, std::shared_ptr<RankState[]> rank_states);
  /// The index of a rank among those that share these cores.
  virtual int local_index(int rank) const { return rank; }
  /// Called in the process of the rank that aborts the world, before other ranks can see the
  /// failure.
  virtual void on_failure(const std::exception_ptr&) {}
  bool says_ended(int rank) const {
    return rank_states_[rank].ended.load(std::memory_order_acquire) >=
           run_.load(std::memory_order_relaxed);
  }

 private:
  static constexpr uint32_t kEndedForGood = UINT32_MAX;

  const int ranks_;
  const std::chrono::milliseconds deadline_;
  const int sharing_;
  const bool is_crowded_;
  const int spins_;
  /// Helper threads read it too.
  std::atomic<uint32_t> run_ = 1;
  const std::shared_ptr<WorldState> state_;
  const std::shared_ptr<RankState[]> rank_states_;
};

/// The message of an exception; "out of memory" when there is none to copy it to.
std::string text_of(const std::exception_ptr& cause) noexcept;

}  // namespace weft

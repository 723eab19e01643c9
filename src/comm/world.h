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

namespace weft {

class MemoryGroup;

/// Cores that this process may use.
int available_cores();

/// What ended a world early.
struct WorldFailure {
  /// The rank that found it: its exception is the cause, those of the others are echoes.
  int found_by = -1;
  /// The rank at fault, or -1.
  int rank = -1;
  std::string text = {};
  /// True when a whole deadline has passed already.
  bool was_late = false;
};

/// What all ranks of a world see of it, be they threads or processes. Zeros are a world that has
/// begun.
struct WorldState {
  /// The first to claim it writes the failure, and then says so.
  std::atomic<uint32_t> failing{0};
  std::atomic<uint32_t> aborted{0};
  int32_t found_by = 0;
  int32_t rank = 0;
  int32_t was_late = 0;
  /// Cut where there is no room for all.
  std::array<char, 4000> text{};
};

/// What all ranks see of one of them. Zeros are one that has begun.
struct RankState {
  /// The number of the run that it ended last.
  std::atomic<uint32_t> ended{0};
  /// When it said last that it waits, in milliseconds of a steady clock, which may pass 2^32.
  std::atomic<uint32_t> waited_at{0};
};

/// What ranks that fail together share: the deadline, who has ended, and the first failure.
class World {
 public:
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  virtual ~World() = default;

  int ranks() const { return ranks_; }
  std::chrono::milliseconds deadline() const { return deadline_; }
  /// Polls before a waiting thread yields its core.
  int spins() const { return spins_; }
  /// True when there are more ranks here than cores that this process may use.
  bool is_crowded() const { return is_crowded_; }
  /// The thread of `rank`, which waits, shares a core: if it is with another rank, which the system
  /// may leave so for a tenth of a second, each waits while the other has it.
  void keep_apart(int rank) const;

  bool is_aborted() const { return state_.aborted.load(std::memory_order_seq_cst) != 0; }
  /// Ends the waits of all ranks; only the first failure counts.
  void abort(const WorldFailure& failure, const std::exception_ptr& cause = {});
  /// Something that `rank` called threw `cause`; no failure if the world has one already.
  void threw(int rank, const std::exception_ptr& cause);
  /// The failure of an aborted world.
  WorldFailure failure() const;

  /// Rank `rank` has ended: it will call nothing any more in this run.
  virtual void end(int rank);
  /// Another run of this rank begins; the ranks have equally many.
  void begin_run();
  /// Rank `rank` will call nothing in any run.
  void end_for_good(int rank);
  /// True when it will call nothing any more.
  virtual bool has_ended(int rank) const { return says_ended(rank); }
  /// Rank `rank`, the caller's, waits for another one; said again while it does.
  void is_waiting(int rank) const;
  /// True when it does, where that is known: it is not at fault, and says for whom.
  bool waits(int rank) const;
  /// True when its process is gone too, where that is known.
  virtual bool is_gone(int rank) const { return has_ended(rank); }
  /// "ended", or how else a rank came to call nothing any more.
  virtual std::string end_in_words(int) const { return "ended"; }

  /// How long a rank of an aborted world may still read the memory of others: no less than any
  /// call, and little where a whole deadline has passed already.
  std::chrono::milliseconds patience() const;
  /// Rank `rank` reads this one's memory and does not go on, though the world was aborted for long.
  virtual void is_stuck(int) const {}
  /// True when these ranks of the world see each other's memory: they can make a `group`.
  virtual bool shares_memory(std::span<const int>) const { return true; }
  /// The group that the members of `key` make with their calls of the same number; called by each
  /// of them, with its ranks of the world.
  virtual std::shared_ptr<MemoryGroup> group(const std::vector<int64_t>& key,
                                             const std::vector<int>& members,
                                             const std::string& name) = 0;

 protected:
  /// `state` and that of each rank lie where all ranks see them. Waiting ranks spin as long as
  /// suits `sharing` ranks on these cores.
  World(int ranks, std::chrono::milliseconds deadline, int sharing, WorldState& state,
        RankState* rank_states);
  /// The number of a rank among those that share these cores.
  virtual int place_of(int rank) const { return rank; }
  /// Told in the process of the rank that aborts the world, before the others know.
  virtual void is_failing(const std::exception_ptr&) {}
  bool says_ended(int rank) const {
    return rank_states_[rank].ended.load(std::memory_order_acquire) >= run_;
  }

 private:
  static constexpr uint32_t kEndedForGood = UINT32_MAX;
  void await_abort();

  const int ranks_;
  const std::chrono::milliseconds deadline_;
  const int sharing_;
  const bool is_crowded_;
  const int spins_;
  uint32_t run_ = 1;
  WorldState& state_;
  RankState* rank_states_;
};

/// What an exception says.
std::string text_of(const std::exception_ptr& cause);

}  // namespace weft

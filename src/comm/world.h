// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "weft/error.h"

namespace weft {

class ThreadsGroup;

/// Cores that this process may use.
int available_cores();

/// What ended a world early.
struct WorldFailure {
  /// The rank that found it: its exception is the cause, those of the others are echoes.
  int found_by = -1;
  /// The rank at fault, or -1.
  int rank = -1;
  std::string text;
  std::exception_ptr cause;
  /// True when a whole deadline has passed already.
  bool was_late = false;
};

/// What all ranks of one run_ranks share: the deadline, who has ended, and the first failure.
class World {
 public:
  World(int ranks, std::chrono::milliseconds deadline);

  int ranks() const { return ranks_; }
  std::chrono::milliseconds deadline() const { return deadline_; }
  /// Polls before a waiting thread yields its core.
  int spins() const { return spins_; }

  bool is_aborted() const { return aborted_.load(std::memory_order_seq_cst); }
  /// Ends the waits of all ranks; only the first failure counts.
  void abort(WorldFailure failure);
  /// Something that `rank` called threw `cause`; no failure if the world has one already.
  void threw(int rank, const std::exception_ptr& cause);
  /// The body of `rank` ended with `cause`.
  void body_threw(int rank, std::exception_ptr cause);
  /// The failure of an aborted world.
  WorldFailure failure() const;

  /// Rank `rank` has ended: it will call nothing any more.
  void end(int rank);
  bool has_ended(int rank) const {
    return ended_[static_cast<size_t>(rank)].load(std::memory_order_acquire);
  }
  /// Returns when all ranks have ended. Ends the process when some neither end nor notice a failure
  /// within the deadline and a grace time.
  void await_all();
  /// Throws the first failure, if there is one.
  void rethrow() const;

  /// The group that the other members of `key` get with their call of the same number; `make`s it
  /// for the first.
  template <class Make>
  std::shared_ptr<ThreadsGroup> group(const std::vector<int64_t>& key, int members, Make&& make) {
    const std::lock_guard lock(mutex_);
    GroupEntry& entry = groups_[key];
    if (!entry.group) entry.group = make(next_group_++);
    std::shared_ptr<ThreadsGroup> group = entry.group;
    if (++entry.taken == members) groups_.erase(key);
    return group;
  }
  /// Groups that not all members took.
  void forget_groups() { groups_.clear(); }

 private:
  struct GroupEntry {
    std::shared_ptr<ThreadsGroup> group;
    int taken = 0;
  };
  [[noreturn]] void end_process(const std::unique_lock<std::mutex>& lock) const;

  const int ranks_;
  const std::chrono::milliseconds deadline_;
  const int spins_;
  std::atomic<bool> aborted_{false};
  std::unique_ptr<std::atomic<bool>[]> ended_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int ended_count_ = 0;
  WorldFailure failure_;
  std::chrono::steady_clock::time_point failed_at_;
  std::map<std::vector<int64_t>, GroupEntry> groups_;
  int64_t next_group_ = 1;
};

}  // namespace weft

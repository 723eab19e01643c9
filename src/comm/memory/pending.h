// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "src/comm/flight/record.h"
#include "src/comm/memory/memory_group.h"
#include "src/comm/waiter.h"
#include "src/comm/work_state.h"

namespace weft {

/// A call of one rank that has begun and not ended. It advances whenever its rank waits, for this
/// call or another; derived classes implement each step.
class PendingWork : public Work::State {
 public:
  PendingWork(const MemoryGroup& group, int rank, uint64_t sequence);
  PendingWork(const PendingWork&) = delete;
  PendingWork& operator=(const PendingWork&) = delete;
  ~PendingWork() override { unlink(); }

  void wait() final;
  bool test() final;
  void drop() noexcept final;
  /// Marks the numbers of messages, which are counted apart from collectives.
  static constexpr uint64_t kMessage = uint64_t{1} << 63;

  /// As `wait`, but stores an error for a later `wait` to throw.
  void wait_quietly() noexcept;
  /// Advances all pending calls of the calling thread; used while it waits for something else.
  static void advance_all() noexcept;
  /// The calling thread's call of that group and number, or null if it is not pending.
  static PendingWork* find(const MemoryGroup& group, uint64_t sequence);

 protected:
  /// Does what can be done now; returns true when nothing is left to do.
  virtual bool advance() = 0;
  /// The ranks of the group for which this call waits now.
  virtual std::vector<int> missing() const = 0;
  /// The step that a missing rank has not done: "call it".
  virtual const char* missed(int rank) const = 0;
  /// Returns when no other rank uses this one's memory for this call. Called after an abort.
  virtual void retreat() noexcept = 0;
  /// Yields until `uses(rank)` is false or that rank is gone.
  template <class Uses>
  void wait_while(int rank, Uses uses) const noexcept;

  /// Called after a wait that succeeded.
  virtual void joined() {}

  /// "all_reduce(sum, f32, [16])".
  virtual std::string words() const = 0;
  /// "world: collective 7: all_reduce(sum, f32, [16])".
  virtual std::string title() const = 0;
  /// Aborts the world with that error and throws it; `at_fault` is a rank of the group.
  [[noreturn]] void fail_with(const std::string& text, int at_fault, bool was_late = false);

  const MemoryGroup& group() const { return group_; }
  int rank() const { return rank_; }
  uint64_t sequence() const { return sequence_; }
  /// The sequence without the message mark, for people.
  uint64_t number() const { return sequence_ & ~kMessage; }
  FlightOperation& flight() { return flight_; }
  /// Restarts the deadline: the other ranks have arrived, and the next wait may take as long.
  void wait_anew() { waiter_ = Waiter(group_.world->spins()); }

 private:
  bool try_to_advance() noexcept;
  void leave() noexcept;
  void look_around();
  [[noreturn]] void throw_echo() const;
  void check_missing_ranks(const std::vector<int>& ranks);
  void check_whether_ended(int rank);
  [[noreturn]] void fail_late(const std::vector<int>& ranks);
  void end_with_current_exception() noexcept;
  void advance_others() noexcept;
  void finish() noexcept;
  void unlink() noexcept;

  const MemoryGroup& group_;
  const int rank_;
  const uint64_t sequence_;
  Waiter waiter_;
  FlightOperation flight_;
  bool done_ = false;
  bool advancing_ = false;
  int exceptions_;
  std::exception_ptr error_ = {};
  PendingWork* previous_ = nullptr;
  PendingWork* next_ = nullptr;
};

template <class Uses>
void PendingWork::wait_while(int rank, Uses uses) const noexcept {
  const World& world = *group_.world;
  Waiter waiter(world.spins());
  while (uses()) {
    if (!waiter.pause()) continue;
    if (world.has_ended(group_.world_rank(rank))) return;
    if (waiter.waited() > world.patience()) world.is_stuck(group_.world_rank(rank));
  }
}

}  // namespace weft

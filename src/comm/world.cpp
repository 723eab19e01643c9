// SPDX-License-Identifier: Apache-2.0
#include "src/comm/world.h"

#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <new>
#include <thread>

#include "src/comm/waiter.h"

namespace weft {

int available_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

/// How long to wait for the text of a failure; a rank that dies while writing it leaves none.
static constexpr std::chrono::milliseconds kLongestFailureWrite{500};

World::World(int ranks, std::chrono::milliseconds deadline, int sharing,
             std::shared_ptr<WorldState> state, std::shared_ptr<RankState[]> rank_states)
    : ranks_(ranks),
      deadline_(deadline),
      sharing_(sharing),
      is_crowded_(sharing > available_cores()),
      // 48 µs against 1.8 µs for a barrier of 4 ranks on 2 cores: a spinning rank delays the rank
      // that it waits for.
      spins_(is_crowded_ ? 20 : 2000),
      state_(std::move(state)),
      rank_states_(std::move(rank_states)) {}

static constexpr std::chrono::nanoseconds kBetweenMoves = std::chrono::milliseconds(100);

// The system may move the thread again. Another program, whose threads have the same numbers, may
// use the core.
void World::keep_apart(int rank) const {
  static thread_local std::chrono::steady_clock::time_point moved{};
  cpu_set_t all, own;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  const int cores = CPU_COUNT(&all);
  const auto now = std::chrono::steady_clock::now();
  if (sharing_ > cores || now - moved < kBetweenMoves) return;
  int before = local_index(rank) * cores / sharing_;
  int core = 0;
  while (!CPU_ISSET(core, &all) || before-- > 0) ++core;
  if (core == sched_getcpu()) return;
  moved = now;
  CPU_ZERO(&own);
  CPU_SET(core, &own);
  if (sched_setaffinity(0, sizeof own, &own) == 0) sched_setaffinity(0, sizeof all, &all);
}

void World::abort(const WorldFailure& failure, const std::exception_ptr& cause) {
  if (state_->failing.exchange(1, std::memory_order_acq_rel) != 0) {
    // Another rank writes its failure. The world must be aborted before this rank gives up: the
    // others check that before they read its memory.
    wait_until(spins_, kLongestFailureWrite, [&] { return is_aborted(); });
    return state_->aborted.store(1, std::memory_order_seq_cst);
  }
  state_->found_by = failure.found_by + 1;
  state_->rank = failure.rank + 1;
  state_->was_late = failure.was_late;
  const size_t length = std::min(failure.text.size(), state_->text.size() - 1);
  std::copy_n(failure.text.begin(), length, state_->text.begin());
  state_->text[length] = '\0';
  on_failure(cause);
  state_->aborted.store(1, std::memory_order_seq_cst);
}

bool stops_within(const std::stop_token& stop, std::chrono::milliseconds limit) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any().wait_for(lock, stop, limit, [] { return false; });
  return stop.stop_requested();
}

/// Short enough for a string without an allocation.
static constexpr const char* kNoMemory = "out of memory";

std::string text_of(const std::exception_ptr& cause) noexcept {
  try {
    try {
      std::rethrow_exception(cause);
    } catch (const std::exception& error) {
      return error.what();
    } catch (...) {
      return "something that is no std::exception";
    }
  } catch (const std::bad_alloc&) {
    return kNoMemory;
  }
}

void World::abort_for_exception(int rank, const std::exception_ptr& cause) noexcept {
  if (is_aborted()) return;
  WorldFailure failure{rank, rank};
  try {
    failure.text = concat("rank ", rank, " threw: ", text_of(cause));
  } catch (const std::bad_alloc&) {
    failure.text = kNoMemory;
  }
  abort(failure, cause);
}

CommError World::abort_for_call(const WorldFailure& failure, std::string operation,
                                uint64_t number) {
  CommError error(failure.text, failure.rank, std::move(operation), number);
  abort(failure, std::make_exception_ptr(error));
  return error;
}

CommError World::echo(const std::string& title, std::string operation, uint64_t number) const {
  const WorldFailure cause = failure();
  return {concat(title, ": given up: ", cause.text), cause.rank, std::move(operation), number};
}

WorldFailure World::failure() const {
  const char* text = state_->text.data();
  if (text[0] == '\0') text = "a rank failed, and died before it wrote why";
  return {state_->found_by - 1, state_->rank - 1, text, state_->was_late != 0};
}

std::chrono::milliseconds World::reader_deadline() const {
  constexpr std::chrono::milliseconds least(1000);
  return state_->was_late != 0 ? least : std::max(least, deadline_);
}

void World::end(int rank) {
  rank_states_[rank].ended.store(run_.load(), std::memory_order_release);
}

void World::begin_run() { run_ = std::min<uint32_t>(run_.load() + 1, kEndedForGood); }

void World::end_for_good(int rank) {
  rank_states_[rank].ended.store(kEndedForGood, std::memory_order_release);
}

static uint32_t steady_milliseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

void World::report_waiting(int rank) const {
  rank_states_[rank].waited_at.store(steady_milliseconds(), std::memory_order_relaxed);
}

bool World::waits(int rank) const {
  // A waiting rank reports every millisecond; a loaded machine may delay that.
  constexpr uint32_t kBetweenLooks = 250;
  const uint32_t at = rank_states_[rank].waited_at.load(std::memory_order_relaxed);
  return at != 0 && steady_milliseconds() - at < kBetweenLooks;
}

static constexpr std::chrono::nanoseconds kYieldsOnly = std::chrono::milliseconds(2);
static constexpr std::chrono::nanoseconds kLongestSleep = std::chrono::milliseconds(1);
/// The longest time between two looks at the clock that counts as waiting. A longer gap means that
/// this thread did other work or was stopped, and the ranks that it waits for may have been, too.
static constexpr std::chrono::nanoseconds kLongestPause = std::chrono::seconds(1);
/// A yield takes about a microsecond when no other thread is ready to run.
static constexpr std::chrono::nanoseconds kYieldToSomebody = std::chrono::microseconds(5);

void Waiter::look_at_clock() {
  const auto now = std::chrono::steady_clock::now();
  if (last_look_ != std::chrono::steady_clock::time_point{}) {
    waited_ += std::min<std::chrono::nanoseconds>(now - last_look_, kLongestPause);
  }
  last_look_ = now;
}

void Waiter::give_way() {
  look_at_clock();
  if (only_yields_ || waited_ < kYieldsOnly) {
    const std::chrono::nanoseconds before = waited_;
    sched_yield();
    look_at_clock();
    shares_core_ = waited_ - before > kYieldToSomebody;
  } else {
    std::this_thread::sleep_for(std::min(waited_ / 32, kLongestSleep));
    shares_core_ = false;
  }
}

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include "src/comm/memory/pending.h"

#include <algorithm>

namespace weft {

static constexpr std::chrono::milliseconds kWaitersFirst{1000};

/// The calling thread's pending calls, the latest first.
static constinit thread_local PendingWork* pending_first = nullptr;

PendingWork::PendingWork(const MemoryGroup& group, int rank, uint64_t sequence)
    : group_(group),
      rank_(rank),
      sequence_(sequence),
      waiter_(group.world->spins()),
      exceptions_(std::uncaught_exceptions()),
      next_(pending_first) {
  if (next_) next_->previous_ = this;
  pending_first = this;
}

void PendingWork::finish() noexcept {
  if (!error_) flight_.ended();
  unlink();
}

void PendingWork::unlink() noexcept {
  if (previous_) {
    previous_->next_ = next_;
  } else if (pending_first == this) {
    pending_first = next_;
  }
  if (next_) next_->previous_ = previous_;
  previous_ = next_ = nullptr;
}

PendingWork* PendingWork::find(const MemoryGroup& group, uint64_t sequence) {
  PendingWork* work = pending_first;
  while (work && (&work->group_ != &group || work->sequence_ != sequence)) work = work->next_;
  return work;
}

void PendingWork::wait() {
  wait_anew();
  wait_quietly();
  if (error_) std::rethrow_exception(error_);
  joined();
}

void PendingWork::wait_quietly() noexcept {
  while (!try_to_advance()) {
    advance_others();
    if (waiter_.pause()) look_around();
  }
}

bool PendingWork::test() {
  if (try_to_advance()) return true;
  advance_others();
  waiter_.look_at_clock();
  look_around();
  return done_;
}

void PendingWork::drop() noexcept {
  if (done_) return leave();
  if (std::uncaught_exceptions() > exceptions_) {
    const int who = group_.world_rank(rank_);
    group_.world->abort({who, who, concat(title(), ": given up by rank ", who, ", which threw")});
  }
  wait_quietly();
  leave();
}

void PendingWork::leave() noexcept {
  try {
    if (!error_) joined();
  } catch (const std::exception&) {
    // A device that cannot recover reports it at its next call.
  }
}

bool PendingWork::try_to_advance() noexcept {
  if (done_) return true;
  if (advancing_) return false;
  advancing_ = true;
  try {
    done_ = advance();
  } catch (...) {
    end_with_current_exception();
  }
  advancing_ = false;
  if (done_) finish();
  return done_;
}

void PendingWork::advance_others() noexcept {
  for (PendingWork* work = pending_first; work;) {
    PendingWork* next = work->next_;
    if (work != this) work->try_to_advance();
    work = next;
  }
}

void PendingWork::advance_all() noexcept {
  for (PendingWork* work = pending_first; work;) {
    PendingWork* next = work->next_;
    work->try_to_advance();
    work = next;
  }
}

void PendingWork::look_around() {
  try {
    const World& world = *group_.world;
    world.is_waiting(group_.world_rank(rank_));
    if (waiter_.shares_core()) world.keep_apart(group_.world_rank(rank_));
    // Calls that completed on the failing rank complete here, too: they precede the failure.
    if (world.is_aborted() && !(done_ = advance())) throw_echo();
    if (!done_) check_missing_ranks(missing());
  } catch (...) {
    end_with_current_exception();
  }
  if (done_) finish();
}

void PendingWork::throw_echo() const {
  const WorldFailure failure = group_.world->failure();
  throw CommError(concat(title(), ": given up: ", failure.text), failure.rank, words(), number());
}

void PendingWork::check_missing_ranks(const std::vector<int>& ranks) {
  for (const int rank : ranks) {
    if (group_.world->has_ended(group_.world_rank(rank))) check_whether_ended(rank);
  }
  const World& world = *group_.world;
  if (ranks.empty() || waiter_.waited() <= world.deadline()) return;
  // A rank that is itself blocked on another rank reports first, and names that rank.
  const bool all_wait = std::all_of(ranks.begin(), ranks.end(),
                                    [&](int rank) { return world.waits(group_.world_rank(rank)); });
  const auto longer = std::min<std::chrono::milliseconds>(world.deadline() / 2, kWaitersFirst);
  if (!all_wait || waiter_.waited() > world.deadline() + longer) fail_late(ranks);
}

void PendingWork::check_whether_ended(int rank) {
  // The rank may have arrived between the check of its stage and the check of its end.
  const std::vector<int> now = missing();
  if (std::find(now.begin(), now.end(), rank) == now.end()) return;
  // The rank ended because it threw, between the check for failures and this one.
  if (group_.world->is_aborted()) throw_echo();
  fail_with(
      concat(title(), ": ", group_.rank_in_words(rank), " ",
             group_.world->end_in_words(group_.world_rank(rank)), " and did not ", missed(rank)),
      rank);
}

void PendingWork::fail_late(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) {
    text += concat(text.empty() ? "" : "; ", group_.rank_in_words(rank), " did not ", missed(rank));
  }
  text += concat(" within ", group_.world->deadline().count(), " ms; there were");
  const char* separator = " ";
  for (int rank = 0; rank < group_.size(); ++rank) {
    if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) continue;
    text += concat(separator, group_.rank_in_words(rank));
    separator = ", ";
  }
  fail_with(concat(title(), ": ", text), ranks.front(), true);
}

void PendingWork::fail_with(const std::string& text, int at_fault, bool was_late) {
  const int world_rank = group_.world_rank(at_fault);
  const CommError error(text, world_rank, words(), number());
  group_.world->abort({group_.world_rank(rank_), world_rank, text, was_late},
                      std::make_exception_ptr(error));
  throw error;
}

void PendingWork::end_with_current_exception() noexcept {
  error_ = std::current_exception();
  group_.world->threw(group_.world_rank(rank_), error_);
  done_ = true;
  flight_.failed();
  write_flight_record(text_of(error_));
  retreat();
}

}  // namespace weft

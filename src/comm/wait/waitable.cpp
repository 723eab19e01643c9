// SPDX-License-Identifier: Apache-2.0
#include "src/comm/wait/waitable.h"

#include <algorithm>

namespace weft {

static constexpr std::chrono::milliseconds kWaitersFirst{1000};

/// The calling thread's linked calls, the latest first.
WEFT_STATIC_TLS static constinit thread_local Waitable* linked_first = nullptr;

Waitable::Waitable(const Members& group, int rank, uint64_t sequence)
    : members_(group),
      world_(*group.world),
      rank_(rank),
      sequence_(sequence),
      waiter_(world_.spins()),
      exceptions_(std::uncaught_exceptions()) {}

void Waitable::link() noexcept {
  linked_ = true;
  next_ = linked_first;
  if (next_) next_->previous_ = this;
  linked_first = this;
}

void Waitable::unlink() noexcept {
  if (previous_) {
    previous_->next_ = next_;
  } else if (linked_first == this) {
    linked_first = next_;
  }
  if (next_) next_->previous_ = previous_;
  previous_ = next_ = nullptr;
}

void Waitable::finish() noexcept {
  if (!error_) flight_.ended();
  unlink();
}

Waitable* Waitable::find(const Members& group, uint64_t sequence) {
  Waitable* work = linked_first;
  while (work && (&work->members_ != &group || work->sequence_ != sequence)) work = work->next_;
  return work;
}

void Waitable::wait() {
  wait_anew();
  wait_quietly();
  if (error_) std::rethrow_exception(error_);
  joined();
}

void Waitable::wait_quietly() noexcept {
  while (!try_to_advance()) {
    advance_linked(this);
    if (waiter_.pause()) look_for_failures();
  }
}

bool Waitable::test() {
  if (!try_to_advance()) {
    advance_linked(this);
    waiter_.look_at_clock();
    look_for_failures();
  }
  return done_ && (error_ || is_complete());
}

void Waitable::drop() noexcept {
  if (done_) return leave();
  if (std::uncaught_exceptions() > exceptions_) {
    const int who = members_.world_rank(rank_);
    world_.abort({who, who, concat(title(), ": given up by rank ", who, ", which threw")});
  }
  wait_quietly();
  leave();
}

void Waitable::leave() noexcept {
  try {
    if (!error_) joined();
  } catch (const std::exception&) {
    // A device that cannot recover reports it at its next call.
  }
}

bool Waitable::try_to_advance() noexcept {
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

void Waitable::advance_linked(const Waitable* except) noexcept {
  for (Waitable* work = linked_first; work;) {
    Waitable* next = work->next_;
    if (work != except) work->try_to_advance();
    work = next;
  }
}

void Waitable::look_for_failures() {
  try {
    world_.report_waiting(members_.world_rank(rank_));
    if (linked_ && waiter_.shares_core()) world_.keep_apart(members_.world_rank(rank_));
    // Calls that completed on the failing rank complete here, too: they precede the failure.
    if (world_.is_aborted() && !(done_ = advance())) throw_echo();
    if (!done_) check_missing_ranks();
  } catch (...) {
    end_with_current_exception();
  }
  if (done_) finish();
}

void Waitable::check_missing_ranks() {
  const std::chrono::milliseconds deadline = world_.deadline();
  if (waited() <= deadline && !heeds_departures()) return;
  const std::vector<int> ranks = missing();
  for (const int rank : ranks) {
    const std::string gone = departure(rank);
    if (gone.empty()) continue;
    // The rank may have arrived between the check of its progress and that of its end.
    const std::vector<int> now = missing();
    if (std::find(now.begin(), now.end(), rank) == now.end()) continue;
    // The rank ended because it threw, between the check for failures and this one.
    if (world_.is_aborted()) throw_echo();
    fail_with(
        concat(title(), ": ", members_.in_words(rank), " ", gone, " and did not ", missed(rank)),
        rank);
  }
  if (ranks.empty() || waited() <= deadline || waited() <= deadline + grace(ranks)) return;
  fail_with(concat(title(), ": ", in_words(ranks, concat(" within ", deadline.count(), " ms"))),
            ranks.front(), true);
}

std::string Waitable::departure(int rank) const {
  const int world_rank = members_.world_rank(rank);
  return world_.has_ended(world_rank) ? world_.end_in_words(world_rank) : "";
}

std::chrono::milliseconds Waitable::grace(const std::vector<int>& ranks) const {
  // A rank that is itself blocked on another rank reports first, and names that rank.
  const bool all_wait = std::all_of(ranks.begin(), ranks.end(), [&](int rank) {
    return world_.waits(members_.world_rank(rank));
  });
  if (!all_wait) return {};
  return std::min<std::chrono::milliseconds>(world_.deadline() / 2, kWaitersFirst);
}

/// "rank 1 did not call it within 300 ms; arrived: rank 0, rank 2".
std::string Waitable::in_words(const std::vector<int>& ranks, const std::string& within) const {
  const auto lack = [&](int rank) {
    return concat(members_.in_words(rank), " did not ", missed(rank));
  };
  std::vector<int> others;
  for (int rank = 0; rank < members_.size(); ++rank) {
    if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) others.push_back(rank);
  }
  const auto name = [&](int rank) { return members_.in_words(rank); };
  return concat(listed(ranks, lack, "; "), within, "; arrived:", others.empty() ? "" : " ",
                listed(others, name));
}

std::string Waitable::prefix() const {
  return concat(members_.name, sequence_ & kMessage ? ": message " : ": collective ", number(),
                ": ");
}

std::string Waitable::title() const { return prefix() + words(); }

void Waitable::throw_echo() const {
  CommError error = world_.echo(title(), words(), number());
  const std::vector<int> ranks = missing();
  // When no rank is known to be at fault, the error lists the missing ones.
  if (error.rank() >= 0 || ranks.empty()) throw error;
  throw CommError(concat(error.what(), "; ", in_words(ranks, "")), -1, words(), number());
}

void Waitable::fail_with(const std::string& text, int at_fault, bool was_late) const {
  throw world_.abort_for_call(
      {members_.world_rank(rank_), members_.world_rank(at_fault), text, was_late}, words(),
      number());
}

void Waitable::fail_unequal(const Signature& first, int rank, const Signature& other) const {
  fail_with(prefix() + unequal_in_words(members_.in_words(0), first, members_.in_words(rank), other,
                                        "with other contents"),
            rank);
}

void Waitable::fail_message(int rank, DType dtype, int64_t count) const {
  fail_with(concat(title(), ": ", members_.in_words(rank), " sent (", dtype, ", [", count, "])"),
            rank);
}

void Waitable::end_with_current_exception() noexcept {
  error_ = std::current_exception();
  world_.abort_for_exception(members_.world_rank(rank_), error_);
  done_ = true;
  flight_.failed();
  write_flight_record(text_of(error_));
  await_release();
}

}  // namespace weft

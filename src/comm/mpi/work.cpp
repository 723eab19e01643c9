// SPDX-License-Identifier: Apache-2.0
#include "src/comm/mpi/work.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "src/comm/memory/pending.h"
#include "src/comm/mpi/engine.h"
#include "src/comm/world.h"

namespace weft {

/// Longest time that a message may be in transit between processes of one host.
static constexpr std::chrono::seconds kLongestWay{1};
/// A late rank may itself be blocked on a rank with which it shares memory, and knows better which
/// rank is at fault. It gets this much extra time to report first, even if its wait started later.
static constexpr std::chrono::milliseconds kOthersFirst{500};

MpiWork::MpiWork(MpiTransport& transport, uint64_t number)
    : transport_(transport),
      keep_(transport.shared_from_this()),
      number_(number),
      waiter_(transport.engine().world().spins()),
      exceptions_(std::uncaught_exceptions()) {}

/// An error in `next` ends this call with that error, and aborts the world.
template <class Step>
void MpiWork::step(Step&& next) noexcept {
  if (done_) return;
  try {
    next();
  } catch (...) {
    error_ = std::current_exception();
    engine().world().threw(group().world_rank(rank()), error_);
    finish();
  }
}

void MpiWork::start() noexcept {
  engine().add_work();
  step([&] { post(); });
}

void MpiWork::receive(const MpiHeader& header, MpiPayload payload) noexcept {
  step([&] { take(header, payload); });
}

void MpiWork::transferred(uint64_t token) noexcept {
  has_moved_ = true;
  step([&] { moved(token); });
}

void MpiWork::finish() noexcept {
  done_ = true;
  engine().remove_work();
  leave();
}

void MpiWork::wait() {
  waiter_ = Waiter(engine().world().spins());
  wait_quietly();
  if (error_) std::rethrow_exception(error_);
}

void MpiWork::wait_quietly() noexcept {
  const MpiEngine::Caller caller(engine());
  while (!engine().advance(*this)) {
    // Other ranks may wait for this rank's other works before they make this call.
    PendingWork::advance_all();
    if (pause()) look_around();
  }
  see_end();
}

bool MpiWork::test() {
  const bool done = engine().advance(*this);
  if (!done) {
    PendingWork::advance_all();
    waiter_.look_at_clock();
    look_around();
  }
  const MpiEngine::Lock lock = engine().lock();
  if (done_) see_end();
  return done_;
}

void MpiWork::drop() noexcept {
  if (std::uncaught_exceptions() > exceptions_ && !engine().advance(*this)) {
    const int who = group().world_rank(rank());
    engine().world().abort(
        {who, who, concat(title(), ": given up by rank ", who, ", which threw")});
  }
  wait_quietly();
}

/// Called on the caller's thread.
void MpiWork::see_end() {
  transport_.add_received(received_);
  flight_.received(received_);
  received_ = 0;
  if (!error_) return flight_.ended();
  flight_.failed();
  write_flight_record(text_of(error_));
}

/// Waits between two polls; returns true when `look_around` is due.
bool MpiWork::pause() {
  if (!engine().is_moving()) return waiter_.pause();
  // Large data progresses only while both ends poll.
  sched_yield();
  waiter_.look_at_clock();
  return true;
}

void MpiWork::look_around() noexcept {
  const MpiEngine::Lock lock = engine().lock();
  step([&] {
    if (engine().world().is_aborted()) throw_echo();
    engine().world().is_waiting(group().world_rank(rank()));
    // The call has progressed: the next wait gets the full deadline again.
    if (std::exchange(has_moved_, false)) waiter_ = Waiter(engine().world().spins());
    check_missing_ranks();
  });
  if (engine().world().is_aborted()) engine().poll();  // notifies the other processes
}

void MpiWork::throw_echo() const {
  const WorldFailure failure = engine().world().failure();
  std::string text = concat(title(), ": given up: ", failure.text);
  // When no rank is known to be at fault, list the missing ones.
  if (failure.rank < 0) text += concat("; ", who_is_missing(""));
  throw CommError(text, failure.rank, words(), number());
}

void MpiWork::check_missing_ranks() {
  for (const int rank : silent()) {
    const int world_rank = group().world_rank(rank);
    // Its messages arrive before its end message, or soon after its process has exited.
    const bool is_gone = waiter_.waited() > kLongestWay && engine().world().is_gone(world_rank);
    if (!engine().has_ended(world_rank) && !is_gone) continue;
    fail_with(concat(title(), ": ", group().rank_in_words(rank), " ",
                     is_gone ? engine().world().end_in_words(world_rank) : "ended", " and did not ",
                     missed()),
              rank);
  }
  const std::chrono::milliseconds deadline = engine().world().deadline();
  if (waiter_.waited() > deadline + std::min(deadline / 4, kOthersFirst)) fail_late();
}

void MpiWork::fail_late() {
  const std::vector<int> silent_ranks = silent();
  const int at_fault = silent_ranks.empty() ? slow().front() : silent_ranks.front();
  const auto deadline = engine().world().deadline();
  fail_with(concat(title(), ": ", who_is_missing(concat(" within ", deadline.count(), " ms"))),
            at_fault, true);
}

std::string MpiWork::who_is_missing(const std::string& within) const {
  const std::vector<int> silent_ranks = silent();
  const std::vector<int> slow_ranks = slow();
  std::string text;
  const auto tell = [&](int rank, const char* what) {
    text += concat(text.empty() ? "" : "; ", group().rank_in_words(rank), " did not ", what);
  };
  for (const int rank : silent_ranks) tell(rank, missed());
  for (const int rank : slow_ranks) tell(rank, "finish it");
  text += concat(within, "; there were");
  const char* separator = " ";
  for (int rank = 0; rank < size(); ++rank) {
    const auto is_in = [&](const std::vector<int>& ranks) {
      return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
    };
    if (is_in(silent_ranks) || is_in(slow_ranks)) continue;
    text += concat(separator, group().rank_in_words(rank));
    separator = ", ";
  }
  return text;
}

void MpiWork::fail_with(const std::string& text, int at_fault, bool was_late) {
  const int world_rank = group().world_rank(at_fault);
  const CommError error(text, world_rank, words(), number());
  engine().world().abort({group().world_rank(rank()), world_rank, text, was_late},
                         std::make_exception_ptr(error));
  throw error;
}

}  // namespace weft

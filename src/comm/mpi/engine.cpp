// SPDX-License-Identifier: Apache-2.0
#include "src/comm/mpi/engine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "src/comm/mpi/session.h"

namespace weft {

static std::atomic<bool> termination_asked{false};

/// Handles SIGTERM, with which launchers end a job's processes when one of them has exited, so that
/// this process can report what it was waiting for. Keeps a handler that the program has installed.
class Termination : NotCopied {
 public:
  Termination() {
    struct sigaction before = {};
    sigaction(SIGTERM, nullptr, &before);
    if ((before.sa_flags & SA_SIGINFO) != 0 || before.sa_handler != SIG_DFL) return;
    struct sigaction noting = {};
    noting.sa_handler = [](int) { termination_asked.store(true, std::memory_order_relaxed); };
    noting.sa_flags = SA_RESTART;
    installed_ = sigaction(SIGTERM, &noting, nullptr) == 0;
  }
  ~Termination() {
    if (installed_) std::signal(SIGTERM, SIG_DFL);
  }

  /// True when the signal was received.
  bool is_asked() const { return installed_ && termination_asked.load(std::memory_order_relaxed); }
  /// Ends the process as the signal would have done.
  [[noreturn]] static void obey() {
    std::signal(SIGTERM, SIG_DFL);
    kill(getpid(), SIGTERM);
    while (true) pause();
  }

 private:
  bool installed_ = false;
};

/// How often the engine's thread checks for messages when no call is in progress.
static constexpr std::chrono::milliseconds kIdle{5};
/// How long a new call is left to its caller to poll, and naps between polls without progress.
static constexpr std::chrono::microseconds kFirstNap{100}, kLongestNap{1000};
/// How long a failing rank tries to send its failure to the others.
static constexpr std::chrono::milliseconds kLongestSendOfFailure{200};
/// How long a failed rank stays alive: when it exits the launcher ends the others, which may not
/// have reported yet why they fail.
static constexpr std::chrono::milliseconds kLinger{500};

MpiEngine::MpiEngine(std::unique_ptr<MpiSession> session, std::shared_ptr<World> world)
    : session_(std::move(session)),
      rank_(session_->rank()),
      size_(session_->size()),
      world_(std::move(world)),
      short_messages_(std::make_unique<MpiShortMessages>(*session_)),
      bulk_(std::make_unique<MpiBulk>(*session_)),
      ended_(static_cast<size_t>(size_)),
      greatest_tag_(session_->greatest_tag()),
      polls_sockets_(session_->has_sockets()) {
  // The signals of a program that uses MPI itself are its own.
  if (!session_->is_guest()) termination_ = std::make_unique<Termination>();
  if (session_->level() == MpiLevel::multiple) thread_ = std::thread([this] { run(); });
}

MpiEngine::~MpiEngine() { stop_thread(); }

void MpiEngine::stop_thread() {
  {
    const Lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

MpiEngine::Caller::~Caller() {
  if (--engine_.callers_ != 0) return;
  const Lock lock(engine_.mutex_);
  if (engine_.works_ > 0 && engine_.asleep_) engine_.changed_.notify_all();
}

void MpiEngine::add_work() {
  ++works_;
  if (asleep_) changed_.notify_all();
}

void MpiEngine::run() {
  Lock lock(mutex_);
  while (!stopping_) {
    if (works_ == 0 || callers_ > 0) await_unattended_work(lock);
    look_at_termination();
    if (stopping_ || callers_ > 0) continue;
    poll();
    if (works_ > 0) pause_between_polls(lock);
  }
}

/// Leaves a new call to its caller to poll for a while, because most calls are waited for at once.
/// The time grows while callers do so, and is reset when one does not.
void MpiEngine::await_unattended_work(Lock& lock) {
  asleep_ = true;
  const bool told = changed_.wait_for(lock, kIdle) == std::cv_status::no_timeout;
  asleep_ = false;
  if (!told || stopping_) return;
  lock.unlock();
  std::this_thread::sleep_for(patience_);
  lock.lock();
  const bool is_needed = works_ > 0 && callers_ == 0;
  patience_ = is_needed ? kFirstNap : std::min(patience_ * 2, kLongestNap);
  nap_ = kFirstNap;
}

/// After SIGTERM, aborts the world, so that the rank's pending call reports an error, and a little
/// later ends the process if it is still running.
void MpiEngine::look_at_termination() {
  if (!termination_ || !termination_->is_asked()) return;
  const auto now = std::chrono::steady_clock::now();
  if (asked_at_ == std::chrono::steady_clock::time_point{}) {
    asked_at_ = now;
    // The launcher also asks because a rank has died, which is then the cause.
    const int gone = gone_rank();
    world_->abort(gone >= 0 ? death_of(gone)
                            : WorldFailure{rank_, -1,
                                           concat("rank ", rank_, " was told to end (signal ",
                                                  SIGTERM, ')')});
  }
  if (now - asked_at_ > kLinger) Termination::obey();
}

void MpiEngine::pause_between_polls(Lock& lock) {
  const bool moving = is_moving();
  lock.unlock();
  if (moving) {
    sched_yield();
    nap_ = kFirstNap;
  } else {
    std::this_thread::sleep_for(nap_);
    nap_ = std::min(nap_ * 5 / 4, kLongestNap);
  }
  lock.lock();
}

void MpiEngine::poll() noexcept {
  if (silent_ || stopping_) return;
  try {
    if (world_->is_aborted()) return send_failure();
    short_messages_->receive([&](int from, const MpiHeader& header, MpiPayload payload) {
      take(from, header, payload);
    });
    bulk_->test([](MpiWork& work, uint64_t token) { work.transferred(token); });
    short_messages_->all_sent();
    moving_.store(!bulk_->is_empty(), std::memory_order_relaxed);
    if (world_->is_aborted()) send_failure();
  } catch (...) {
    silent_ = true;
    world_->abort_for_exception(rank_, std::current_exception());
  }
  if (silent_) moving_.store(false, std::memory_order_relaxed);
}

void MpiEngine::take(int from, const MpiHeader& header, MpiPayload payload) {
  if (header.dtype > DType::c128 || header.elements < 0) fail_malformed(from);
  switch (header.to.topic) {
    case MpiTopic::failure: return take_failure(header, payload);
    case MpiTopic::end: ended_[static_cast<size_t>(from)] = 1; return;
    case MpiTopic::call:
    case MpiTopic::message:
    case MpiTopic::reply: return routing_.route(header, payload);
  }
  fail_malformed(from);
}

void MpiEngine::take_failure(const MpiHeader& header, MpiPayload payload) {
  silent_ = true;  // the sender notifies all others
  // A launcher also asks ranks to end because one has died, which only those of its host know.
  const int gone = header.from < 0 ? gone_rank() : -1;
  if (gone >= 0) return world_->abort(death_of(gone));
  const std::string text(reinterpret_cast<const char*>(payload.data()), payload.size());
  world_->abort({static_cast<int>(header.sequence), header.from, text, header.was_late != 0});
}

void MpiEngine::send_failure() {
  if (silent_) return;
  const WorldFailure failure = world_->failure();
  const MpiHeader header{.to = {MpiTopic::failure},
                         .sequence = static_cast<uint64_t>(failure.found_by),
                         .from = failure.rank,
                         .was_late = failure.was_late};
  const size_t length = std::min<size_t>(failure.text.size(), kMpiShortBytes);
  const MpiPayload text = std::as_bytes(std::span(failure.text)).first(length);
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) short_messages_->send(r, header, text, {});
  }
  // The aborted works still own their memory during this wait.
  const auto end = std::chrono::steady_clock::now() + kLongestSendOfFailure;
  while (!short_messages_->all_sent() && std::chrono::steady_clock::now() < end) sched_yield();
  silent_ = true;
}

void MpiEngine::send(int to, const MpiHeader& header, MpiPayload words, const MpiSegments& data) {
  if (!silent_) short_messages_->send(to, header, words, data);
}

void MpiEngine::transfer(const MpiTransfer& transfer, MpiWork& owner, uint64_t token) {
  if (silent_) return;
  bulk_->start(transfer, owner, token);
  moving_.store(true, std::memory_order_relaxed);
}

int MpiEngine::new_tags() {
  if (next_tag_ > greatest_tag_ - 1) next_tag_ = 1;
  return (next_tag_ += 2) - 2;
}

/// The first rank that is known to have exited without an end message, or -1.
int MpiEngine::gone_rank() const {
  for (int r = 0; r < size_; ++r) {
    if (has_sent_all(r)) continue;
    if (world_->is_gone(r) || !loss_of(r).empty()) return r;
  }
  return -1;
}

std::string MpiEngine::loss_of(int rank) const {
  return has_sent_all(rank) ? "" : session_->loss_of(rank);
}

std::string MpiEngine::end_in_words(int gone) const {
  return world_->is_gone(gone) ? world_->end_in_words(gone) : loss_of(gone);
}

WorldFailure MpiEngine::death_of(int gone) const {
  return {rank_, gone, concat("rank ", gone, " ", end_in_words(gone))};
}

/// Reports ranks that exited without an end message, after a while: it may still be in transit.
void MpiEngine::look_for_gone_ranks() {
  const int gone = gone_rank();
  if (gone < 0) return;
  const auto now = std::chrono::steady_clock::now();
  if (first_gone_ == std::chrono::steady_clock::time_point()) first_gone_ = now;
  if (now - first_gone_ < 2 * kLinger || world_->is_aborted()) return;
  world_->abort(
      {rank_, gone, concat("rank ", gone, " ", end_in_words(gone), " before the end of its job")});
}

void MpiEngine::check_call() const {
  if (stopping_ || has_sent_all(rank_)) {
    fail_call("connect", "the program has finalised MPI, which ended the ranks");
  }
  if (session_->level() < MpiLevel::serialized) session_->library().check_thread();
}

void MpiEngine::leave() {
  const Lock lock(mutex_);
  if (stopping_ || has_sent_all(rank_)) return;
  poll();
  ended_[static_cast<size_t>(rank_)] = 1;
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) send(r, {.to = {MpiTopic::end}});
  }
}

bool MpiEngine::try_end() {
  {
    const Lock lock(mutex_);
    if (stopping_) return true;
    poll();
    const bool all_ended = std::find(ended_.begin(), ended_.end(), 0) == ended_.end();
    const bool is_over = silent_ || (all_ended && short_messages_->all_sent());
    look_for_gone_ranks();
    if (!is_over) return false;
  }
  stop_thread();
  termination_.reset();
  if (silent_) return true;
  short_messages_->close();
  session_->end();
  return true;
}

void MpiEngine::end() {
  if (stopping_) return;
  leave();
  // No deadline: nothing waits for this rank, and others may still have much to do.
  wait_until(0, std::chrono::nanoseconds::max(), [&] { return try_end(); });
  if (silent_) std::this_thread::sleep_for(kLinger);
}

}  // namespace weft

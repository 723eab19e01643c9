// SPDX-License-Identifier: Apache-2.0
#include "src/comm/nccl/calls.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "src/comm/wait/waitable.h"
#include "src/device/cuda/runtime.h"
#include "weft/extend/hash.h"

namespace weft {

using Clock = std::chrono::steady_clock;

/// Longest time that an orderly end waits for the other ranks, which may have exited.
static constexpr std::chrono::seconds kLongestEnd{5};
/// Time in which a call may still complete whose data a rank sent before it died.
static constexpr std::chrono::seconds kLongestNcclWay{1};

std::string NcclCallName::title() const {
  const std::string one = concat(group, ": nccl ", in_words(signature), " number ", number);
  if (last_of_graph <= number) return one;
  return concat(one, ", or one up to number ", last_of_graph, " of the same graph");
}

void NcclAgreement::add(const NcclCallName& call, uint64_t variant) {
  last_ = call.number;
  hash_ = mixed(mixed(hash_, call.signature.hash), variant);
  hashes_[call.number % kCalls] = hash_;
  calls_[call.number % kCalls] = call;
  if (call.number == 1 || call.number % kCalls == 0) compare();
}

/// The values of all ranks, in rank order.
template <class T> std::vector<T> NcclAgreement::gathered(std::span<const T> own) const {
  const std::vector<int64_t> counts(static_cast<size_t>(host_transport_->size()),
                                    static_cast<int64_t>(own.size_bytes()));
  std::vector<T> all(own.size() * counts.size());
  const Piece piece{.send = own.data(), .recv = all.data(), .dtype = DType::u8, .counts = counts};
  host_transport_->run({.kind = CollectiveKind::all_gather, .pieces = {&piece, 1}});
  return all;
}

void NcclAgreement::fail(const NcclCallName& call, int at_fault, const std::string& text) {
  throw group_->world->abort_for_call(
      {group_->world_rank(host_transport_->rank()), group_->world_rank(at_fault), text},
      in_words(call.signature), call.number);
}

void NcclAgreement::compare_counts(const NcclCallName& call, std::span<const int64_t> sent,
                                   std::span<const int64_t> expected) {
  // A rank that made another call compares no counts, but its next comparison meets this one.
  compare();
  std::vector<int64_t> own(sent.begin(), sent.end());
  own.insert(own.end(), expected.begin(), expected.end());
  const std::vector<int64_t> all = Communicator(host_transport_).all_gather_numbers(own);
  const size_t ranks = sent.size();
  for (size_t from = 0; from < ranks; ++from) {
    for (size_t to = 0; to < ranks; ++to) {
      const int64_t sends = all[from * 2 * ranks + to];
      const int64_t expects = all[to * 2 * ranks + ranks + from];
      if (sends == expects) continue;
      fail(call, static_cast<int>(from),
           concat(call.title(), ": ", group_->in_words(static_cast<int>(from)),
                  counts_in_words(sends, static_cast<int>(to), expects)));
    }
  }
}

void NcclAgreement::compare() {
  const std::vector<uint64_t> all = gathered(std::span<const uint64_t>(&hash_, 1));
  if (std::any_of(all.begin(), all.end(), [&](uint64_t one) { return one != all[0]; })) {
    fail_diverged();
  }
}

void NcclAgreement::fail_diverged() {
  const std::vector<uint64_t> all = gathered(std::span<const uint64_t>(hashes_));
  const std::vector<uint64_t> lasts = gathered(std::span<const uint64_t>(&last_, 1));
  const auto ranks = static_cast<uint64_t>(host_transport_->size());
  const auto [least, most] = std::minmax_element(lasts.begin(), lasts.end());
  const uint64_t first = *most < kCalls ? 1 : *most - kCalls + 1;
  for (uint64_t number = first; number <= *least; ++number) {
    const uint64_t index = number % kCalls;
    for (uint64_t r = 1; r < ranks; ++r) {
      if (all[r * kCalls + index] == all[index]) continue;
      const NcclCallName& call = calls_[index];
      const auto called = gathered(std::span<const Signature>(&call.signature, 1));
      const auto rank = static_cast<int>(r);
      fail(call, rank,
           concat(call.group, ": nccl call number ", number, ": ",
                  unequal_in_words(group_->in_words(0), called[0], group_->in_words(rank),
                                   called[r], "on another stream or in another way")));
    }
  }
  throw CommError(concat(group_->name, ": ranks differ in what they called before"), -1, "", last_);
}

/// The lanes that one thread created; any thread may destroy a lane.
struct NcclLane::OfThread {
  std::mutex mutex;
  std::vector<NcclLane*> lanes;
  /// Null when the calling thread has created none, or is ending.
  static constinit inline thread_local OfThread* here = nullptr;

  static const std::shared_ptr<OfThread>& current() {
    struct Holder {
      std::shared_ptr<OfThread> mine = std::make_shared<OfThread>();
      Holder() { here = mine.get(); }
      ~Holder() { here = nullptr; }
    };
    thread_local const Holder holder;
    return holder.mine;
  }
};

void NcclLane::watch(const std::stop_token& stop) {
  const auto period = std::clamp<std::chrono::milliseconds>(
      world_.deadline() / 8, std::chrono::milliseconds(5), std::chrono::milliseconds(500));
  do {
    look();
  } while (!stops_within(stop, period));
}

void NcclLane::check_all_results() {
  OfThread* mine = OfThread::here;
  if (!mine) return;
  const std::lock_guard lock(mine->mutex);
  for (NcclLane* lane : mine->lanes) {
    const std::lock_guard lane_lock(lane->mutex_);
    if (!lane->communicator_) lane->check_locked(lane->front());
  }
}

NcclLane::NcclLane(std::shared_ptr<const Members> group, int rank, const nccl::UniqueId& id,
                   Device device, const NcclCallName& first)
    : group_(std::move(group)),
      rank_(rank),
      world_(*group_->world),
      device_(device),
      first_(first),
      communicator_(nccl::begin(group_->size(), id, rank, device.index)),
      siblings_(OfThread::current()) {
  try {
    await(first);
    watchdog_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  } catch (...) {
    end_at_once();
    throw;
  }
  {
    const std::lock_guard lock(siblings_->mutex);
    siblings_->lanes.push_back(this);
  }
  cuda::check_reads_by(check_all_results);
}

NcclLane::~NcclLane() {
  {
    const std::lock_guard lock(siblings_->mutex);
    std::erase(siblings_->lanes, this);
  }
  watchdog_ = {};
  const std::lock_guard lock(mutex_);
  if (!communicator_) return;
  if (world_.is_aborted() || !finish_in_time()) {
    end_at_once();
  } else {
    nccl::destroy(std::exchange(communicator_, nullptr));
  }
}

bool NcclLane::finish_in_time() {
  const std::chrono::nanoseconds most =
      std::min<std::chrono::nanoseconds>(kLongestEnd, world_.deadline());
  try {
    nccl::finish(communicator_);
    nccl::Status status;
    wait_until(world_.spins(), most, [&] {
      status = nccl::status(communicator_);
      return status.is_ready || !status.error.empty() || world_.is_aborted();
    });
    return status.is_ready;
  } catch (const std::exception&) {  // the driver may have shut down before
  }
  return false;
}

void NcclLane::end_at_once() {
  if (!communicator_) return;
  void* ended = std::exchange(communicator_, nullptr);
  if (is_recorded_) {
    // nccl::abort waits until the graphs that contain its calls are destroyed.
    std::thread([ended] { nccl::abort(ended); }).detach();
  } else {
    nccl::abort(ended);
  }
}

void NcclLane::begin(const NcclCallName& call) {
  const std::lock_guard lock(mutex_);
  check_locked(call);
  under_way_.push_back({call, Clock::now()});
}

void NcclLane::queue(const NcclCallName& call, std::span<const nccl::Move> moves,
                     const Stream& stream) {
  if (moves.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    check_locked(call);
    nccl::queue(communicator_, moves, stream);
  }
  await(call);
}

void NcclLane::queued(const Event& event) {
  const std::lock_guard lock(mutex_);
  for (auto call = under_way_.rbegin(); call != under_way_.rend() && call->event.empty(); ++call) {
    call->event = event;
  }
}

void NcclLane::check(const NcclCallName& call) {
  const std::lock_guard lock(mutex_);
  check_locked(call);
}

/// Throws the lane's failure or the world's; when it returns, there is a communicator.
void NcclLane::check_locked(const NcclCallName& call) const {
  if (failure_) std::rethrow_exception(failure_);
  if (world_.is_aborted()) throw world_.echo(call.title(), in_words(call.signature), call.number);
}

void NcclLane::await(const NcclCallName& call) {
  const auto began = Clock::now();
  const auto is_ready = [&] {
    {
      const std::lock_guard lock(mutex_);
      check_locked(call);
      const nccl::Status status = nccl::status(communicator_);
      if (status.is_ready) return true;
      if (!status.error.empty()) {
        fail(call, concat(": ", status.error), false);
      } else if (Clock::now() - began > kLongestNcclWay) {
        fail_if_dead(call);
      }
    }
    Waitable::advance_linked();
    return false;
  };
  while (!wait_until(world_.spins(), world_.deadline(), is_ready)) {
    const std::lock_guard lock(mutex_);
    fail_late(call);
  }
}

void NcclLane::look() noexcept {
  // The lock is held by the owner, which checks the time itself.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || !communicator_) return;
  try {
    cuda::use_device(device_.index);
    if (world_.is_aborted()) return end_at_once();
    look_at_front(Clock::now());
  } catch (...) {
    fail(front(), concat(": ", text_of(std::current_exception())), false);
  }
}

void NcclLane::look_at_front(Clock::time_point now) {
  while (!under_way_.empty()) {
    const UnderWay& front = under_way_.front();
    if (!front.event.empty() && front.event.is_reached()) {
      under_way_.pop_front();
      // The next call's time starts, because it could not progress before.
      if (!under_way_.empty()) under_way_.front().since = now;
      continue;
    }
    const nccl::Status status = nccl::status(communicator_);
    if (!status.error.empty()) {
      if (!fail_if_dead(front.call)) fail(front.call, concat(": ", status.error), false);
    } else if (now - front.since > world_.deadline()) {
      fail_late(front.call);
    } else if (now - front.since > kLongestNcclWay) {
      fail_if_dead(front.call);
    }
    return;
  }
}

bool NcclLane::fail_if_dead(const NcclCallName& call) {
  const std::vector<int>& ranks = group_->world_ranks;
  const auto dead =
      std::find_if(ranks.begin(), ranks.end(), [&](int rank) { return world_.has_died(rank); });
  if (dead == ranks.end()) return false;
  const auto rank = static_cast<int>(dead - ranks.begin());
  const std::string why = concat(": ", group_->in_words(rank), ' ', world_.end_in_words(*dead),
                                 " and did not finish it");
  fail(call, why, false, rank);
  return true;
}

void NcclLane::fail_late(const NcclCallName& call) {
  std::string why = concat(": not done within ", world_.deadline().count(), " ms");
  for (int r = 0; r < group_->size(); ++r) {
    const int rank = group_->world_rank(r);
    if (!world_.has_ended(rank)) continue;
    why += concat("; ", group_->in_words(r), " ", world_.end_in_words(rank));
  }
  fail(call, why, true);
}

void NcclLane::fail(const NcclCallName& call, const std::string& why, bool was_late, int at_fault) {
  const int world_rank = at_fault < 0 ? -1 : group_->world_rank(at_fault);
  failure_ = std::make_exception_ptr(
      world_.abort_for_call({group_->world_rank(rank_), world_rank, call.title() + why, was_late},
                            in_words(call.signature), call.number));
  end_at_once();
}

}  // namespace weft

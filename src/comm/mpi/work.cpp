// SPDX-License-Identifier: Apache-2.0
#include "src/comm/mpi/work.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "src/comm/mpi/engine.h"

namespace weft {

/// Longest time that a message may be in transit between processes of one host.
static constexpr std::chrono::seconds kLongestWay{1};
/// A late rank may itself be blocked on a rank with which it shares memory, and knows better which
/// rank is at fault. It gets this much extra time to report first, even if its wait started later.
static constexpr std::chrono::milliseconds kOthersFirst{500};

MpiWork::MpiWork(MpiTransport& transport, uint64_t number)
    : Waitable(transport.engine().world(), transport.group(), transport.rank(), number),
      transport_(transport),
      keep_(transport.shared_from_this()) {}

/// An error in `next` ends this call with that error, and aborts the world.
template <class Step> void MpiWork::step(Step&& next) noexcept {
  if (over_) return;
  try {
    next();
  } catch (...) {
    failure_ = std::current_exception();
    world().abort_for_exception(group().world_rank(rank()), failure_);
    mark_over();
  }
}

void MpiWork::start() noexcept {
  engine().add_work();
  step([&] {
    if (world().is_aborted()) throw world().echo(title(), words(), number());
    post();
  });
}

void MpiWork::receive(const MpiHeader& header, MpiPayload payload) noexcept {
  step([&] { take(header, payload); });
}

void MpiWork::transferred(uint64_t token) noexcept {
  has_moved_ = true;
  step([&] { moved(token); });
}

void MpiWork::join(const MpiAddress& address) {
  address_ = address;
  engine().routing().join(address, *this);
}

void MpiWork::mark_over() noexcept {
  over_ = true;
  engine().remove_work();
  engine().routing().leave(address_, *this);
}

void MpiWork::wait() {
  const MpiEngine::Caller caller(engine());
  Waitable::wait();
}

void MpiWork::drop() noexcept {
  const MpiEngine::Caller caller(engine());
  try_to_advance();
  Waitable::drop();
}

bool MpiWork::advance() {
  const MpiEngine::Lock lock = engine().lock();
  if (!over_) engine().poll();
  // The call has progressed: the next wait gets the full deadline again.
  if (std::exchange(has_moved_, false)) wait_anew();
  waiter().only_yield(engine().is_moving());
  if (!over_) return false;
  received(received_);
  if (failure_) std::rethrow_exception(failure_);
  return true;
}

std::vector<int> MpiWork::missing() const {
  const MpiEngine::Lock lock = engine().lock();
  return over_ ? std::vector<int>() : awaited_ranks();
}

std::string MpiWork::departure(int rank) const {
  const int world_rank = group().world_rank(rank);
  const MpiEngine::Lock lock = engine().lock();
  const bool has_ended = engine().has_ended(world_rank);
  // Its messages arrive soon after its process has exited.
  if (waited() > kLongestWay && !has_ended && world().is_gone(world_rank)) {
    return world().end_in_words(world_rank);
  }
  // A rank that has called may end before its transfers have arrived here.
  return has_ended && !has_begun() ? "ended" : "";
}

bool MpiWork::heeds_departures() const {
  if (waited() > kLongestWay) return true;
  const MpiEngine::Lock lock = engine().lock();
  return !has_begun();
}

std::chrono::milliseconds MpiWork::grace(const std::vector<int>&) const {
  return std::min<std::chrono::milliseconds>(world().deadline() / 4, kOthersFirst);
}

void MpiWork::retreat() noexcept {
  const MpiEngine::Lock lock = engine().lock();
  if (!over_) mark_over();
  engine().poll();  // notifies the other processes
}

/// Segments of a stream in transit at a time.
static constexpr size_t kInFlight = 4;

size_t MpiStreams::add(MpiEngine& engine, MpiWork& owner, MpiStream stream) {
  if (!stream.is_done()) ++unfinished_;
  streams_.push_back(std::move(stream));
  pump(engine, owner, streams_.size() - 1);
  return streams_.size() - 1;
}

void MpiStreams::pump(MpiEngine& engine, MpiWork& owner, size_t number) {
  MpiStream& stream = streams_[number];
  const size_t end = std::min({stream.allowed, stream.segments.size(), stream.done + kInFlight});
  for (; stream.posted < end; ++stream.posted) {
    engine.transfer({stream.sends, stream.segments[stream.posted], stream.peer, stream.tag}, owner,
                    number << 40 | stream.posted);
  }
}

MpiStreams::Ended MpiStreams::ended(MpiEngine& engine, MpiWork& owner, uint64_t token) {
  const Ended ended{token >> 40, token & ((uint64_t{1} << 40) - 1)};
  MpiStream& stream = streams_[ended.stream];
  ++stream.done;
  if (stream.is_done()) --unfinished_;
  pump(engine, owner, ended.stream);
  return ended;
}

void MpiStreams::allow(MpiEngine& engine, MpiWork& owner, size_t number, size_t segments) {
  streams_[number].allowed = segments;
  pump(engine, owner, number);
}

bool MpiStreams::is_done_with(int peer) const {
  return std::all_of(streams_.begin(), streams_.end(), [&](const MpiStream& stream) {
    return stream.peer != peer || stream.is_done();
  });
}

}  // namespace weft

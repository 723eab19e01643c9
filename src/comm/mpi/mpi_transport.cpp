// SPDX-License-Identifier: Apache-2.0
#include "src/comm/mpi/mpi_transport.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <numeric>
#include <utility>

#include "src/comm/memory/memory_transport.h"
#include "src/comm/mpi/engine.h"

namespace weft {

MpiTransport::MpiTransport(std::shared_ptr<MpiEngine> engine, Members group, int rank)
    : Transport(rank, std::make_shared<Members>(std::move(group))), engine_(std::move(engine)) {}

Work MpiTransport::start(const Collective& call) {
  if (!call.pieces.empty() && call.pieces[0].device.kind == DeviceKind::cuda) {
    refuse_device_memory(name(), call.pieces[0].device);
  }
  engine_->check_call();
  const uint64_t number = is_message(call.kind) ? ++messages_ : ++collectives_;
  std::unique_ptr<MpiWork> work = mpi_work(*this, call, number);
  const MpiEngine::Lock lock = engine_->lock();
  work->start();
  return Work(std::move(work));
}

std::shared_ptr<Transport> MpiTransport::subgroup(std::span<const int> ranks, std::string name) {
  Members group = subgroup_of(ranks, std::move(name));
  const int own = index_among(ranks);
  if (!world()->shares_memory(group.world_ranks)) {
    return std::make_shared<MpiTransport>(engine_, std::move(group), own);
  }
  group.hosts.clear();
  return std::make_shared<MemoryTransport>(world()->group(std::move(group)), own);
}

void MpiTransport::abort(const std::string& reason) {
  Transport::abort(reason);
  const MpiEngine::Lock lock = engine_->lock();
  engine_->poll();  // notifies the other processes
}

std::shared_ptr<Transport> mpi_world(const std::shared_ptr<MpiEngine>& engine,
                                     std::vector<int> hosts, uint64_t number) {
  Members group{.id = number, .name = "world", .world_ranks = std::vector<int>(hosts.size())};
  std::iota(group.world_ranks.begin(), group.world_ranks.end(), 0);
  group.hosts = std::move(hosts);
  group.world = engine->world();
  return std::make_shared<MpiTransport>(engine, std::move(group), engine->rank());
}

/// Longest time that a message may be in transit between processes of one host.
static constexpr std::chrono::seconds kLongestWay{1};
/// A late rank may itself be blocked on a rank with which it shares memory, and knows better which
/// rank is at fault. It gets this much extra time to report first, even if its wait started later.
static constexpr std::chrono::milliseconds kOthersFirst{500};

MpiWork::MpiWork(MpiTransport& transport, uint64_t number)
    : Waitable(*transport.members(), transport.rank(), number),
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
  has_progressed_ = true;
  step([&] {
    const size_t number = token >> 40, segment = token & ((uint64_t{1} << 40) - 1);
    Stream& stream = streams_[number];
    ++stream.done;
    if (stream.is_done()) --unfinished_;
    pump(number);
    moved(stream.kind, segment);
  });
}

void MpiWork::join(const MpiAddress& address) { engine().routing().join(address, *this); }

void MpiWork::mark_over() noexcept {
  over_ = true;
  engine().remove_work();
  engine().routing().leave(*this);
}

void MpiWork::wait() {
  engine().check_call();
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
  if (std::exchange(has_progressed_, false)) wait_anew();
  waiter().only_yield(engine().is_moving());
  if (engine().polls_sockets()) waiter().do_not_spin();
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
  const bool has_ended = engine().has_sent_all(world_rank);
  // What it had sent before has arrived.
  if (std::string loss = engine().loss_of(world_rank); !loss.empty()) return loss;
  // Its messages arrive soon after its process has exited.
  if (waited() > kLongestWay && !has_ended && world().is_gone(world_rank)) {
    return world().end_in_words(world_rank);
  }
  // A rank that has called may end before its transfers have arrived here.
  return has_ended && !begun_ ? "ended" : "";
}

bool MpiWork::heeds_departures() const {
  if (waited() > kLongestWay) return true;
  const MpiEngine::Lock lock = engine().lock();
  return !begun_;
}

std::chrono::milliseconds MpiWork::grace(const std::vector<int>&) const {
  return std::min<std::chrono::milliseconds>(world().deadline() / 4, kOthersFirst);
}

void MpiWork::await_release() noexcept {
  const MpiEngine::Lock lock = engine().lock();
  if (!over_) mark_over();
  engine().poll();  // notifies the other processes
}

/// Segments of a stream in transit at a time.
static constexpr size_t kInFlight = 4;

void MpiWork::add_stream(bool sends, int peer, int tag, MpiSegments segments, MpiStream kind,
                         size_t allowed) {
  streams_.push_back({sends, peer, tag, std::move(segments), kind, allowed});
  if (!streams_.back().is_done()) ++unfinished_;
  pump(streams_.size() - 1);
}

void MpiWork::pump(size_t number) {
  Stream& stream = streams_[number];
  const size_t end = std::min({stream.allowed, stream.segments.size(), stream.done + kInFlight});
  for (; stream.posted < end; ++stream.posted) {
    engine().transfer(
        {stream.sends, stream.segments[stream.posted], group().world_rank(stream.peer), stream.tag},
        *this, number << 40 | stream.posted);
  }
}

void MpiWork::allow(MpiStream kind, size_t segments) {
  for (size_t s = 0; s < streams_.size(); ++s) {
    if (streams_[s].kind != kind) continue;
    streams_[s].allowed = segments;
    pump(s);
  }
}

bool MpiWork::has_moved(int peer) const {
  return std::all_of(streams_.begin(), streams_.end(),
                     [&](const Stream& stream) { return stream.peer != peer || stream.is_done(); });
}

void MpiRouting::join(const MpiAddress& address, MpiWork& work) {
  waiting_.emplace_back(address, &work);
  const auto is_other = [&](const Message& message) { return message.header.to != address; };
  const auto own = std::stable_partition(early_.begin(), early_.end(), is_other);
  const std::vector<Message> messages(std::make_move_iterator(own),
                                      std::make_move_iterator(early_.end()));
  early_.erase(own, early_.end());
  for (const Message& message : messages) route(message.header, message.payload);
}

void MpiRouting::leave(const MpiWork& work) {
  std::erase_if(waiting_, [&](const Waiting& one) { return one.second == &work; });
}

void MpiRouting::route(const MpiHeader& header, MpiPayload payload) {
  const auto found = std::ranges::find(waiting_, header.to, &Waiting::first);
  if (found == waiting_.end()) {
    early_.push_back({header, {payload.begin(), payload.end()}});
    return;
  }
  MpiWork* const work = found->second;
  if (header.to.topic == MpiTopic::message) waiting_.erase(found);
  work->receive(header, payload);
}

}  // namespace weft

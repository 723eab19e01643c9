// SPDX-License-Identifier: Apache-2.0
#include "weft/communicator.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "src/comm/check.h"
#include "src/comm/fake.h"
#include "src/comm/read_collective.h"
#include "src/comm/transport.h"
#include "weft/error.h"
#include "weft/extend/told_by_first.h"

namespace weft {

Work::Work() noexcept = default;
Work::Work(std::unique_ptr<State> state) : state_(std::move(state)) {}
Work::Work(Work&&) noexcept = default;

static std::atomic<void (*)(void (*)(void*), void*)> around_drops{nullptr};

void wait_in_destructors_by(void (*around)(void (*wait)(void*), void* work)) {
  around_drops = around;
}

static void drop(Work::State& state) noexcept {
  const auto around = around_drops.load(std::memory_order_acquire);
  if (!around) return state.drop();
  around([](void* work) { static_cast<Work::State*>(work)->drop(); }, &state);
}

Work& Work::operator=(Work&& other) noexcept {
  if (state_ && state_ != other.state_) drop(*state_);
  state_ = std::move(other.state_);
  return *this;
}

Work::~Work() {
  if (state_) drop(*state_);
}

void Work::wait() {
  if (state_) state_->wait();
}

bool Work::test() { return !state_ || state_->test(); }

static Transport& transport_of(const std::shared_ptr<Transport>& transport) {
  if (!transport) fail("communicator: this rank is not in the group, expected a rank of it");
  return *transport;
}

/// A group of one rank neither waits nor counts traffic.
static void run_alone(const Collective& call) {
  std::vector<const void*> shown(1);
  run_with_absent_peers(call, 0, shown);
}

static Work started(const std::shared_ptr<Transport>& group, const Collective& call) {
  Transport& transport = transport_of(group);
  check_collective(call, transport.rank(), transport.size());
  if (transport.size() > 1) return transport.start(call);
  run_alone(call);
  return {};
}

int Communicator::rank() const { return transport_of(transport_).rank(); }
int Communicator::size() const { return transport_of(transport_).size(); }
const std::string& Communicator::name() const { return transport_of(transport_).name(); }

bool Communicator::contains(const Communicator& other) const {
  const Transport& all = transport_of(transport_);
  const Transport& some = transport_of(other.transport_);
  if (some.size() == 1) return true;  // this rank
  if (all.world() != some.world()) return false;
  const auto is_here = [among = all.world_ranks()](int rank) {
    return among.empty() || std::find(among.begin(), among.end(), rank) != among.end();
  };
  return std::all_of(some.world_ranks().begin(), some.world_ranks().end(), is_here);
}

const CommunicatorTraffic& Communicator::traffic() const {
  return transport_of(transport_).traffic();
}

void Communicator::abort(const std::string& reason) const {
  transport_of(transport_).abort(reason);
}

void Communicator::barrier() const {
  Transport& transport = transport_of(transport_);
  if (transport.size() > 1) transport.run({.kind = CollectiveKind::barrier});
}

Work Communicator::broadcast(std::span<const Piece> pieces, int root) const {
  return started(transport_, {.kind = CollectiveKind::broadcast, .root = root, .pieces = pieces});
}

std::string Communicator::broadcast(std::string text, int root) const {
  const auto tell = [&](void* data, int64_t count, DType dtype) {
    const Piece piece{.send = data, .recv = data, .dtype = dtype, .counts = {&count, 1}};
    broadcast({&piece, 1}, root).wait();
  };
  auto length = static_cast<int64_t>(text.size());
  tell(&length, 1, DType::i64);
  text.resize(static_cast<size_t>(length));
  if (length > 0) tell(text.data(), length, DType::u8);
  return text;
}

Work Communicator::all_gather(std::span<const Piece> pieces) const {
  return started(transport_, {.kind = CollectiveKind::all_gather, .pieces = pieces});
}

Work Communicator::reduce_scatter(std::span<const Piece> pieces, ReduceOp op) const {
  return started(transport_, {.kind = CollectiveKind::reduce_scatter, .op = op, .pieces = pieces});
}

Work Communicator::all_reduce(std::span<const Piece> pieces, ReduceOp op) const {
  return started(transport_, {.kind = CollectiveKind::all_reduce, .op = op, .pieces = pieces});
}

int64_t Communicator::reduced_share(int64_t count) const {
  return share_of(count, size(), rank()).count;
}

Work Communicator::gather(std::span<const Piece> pieces, int root) const {
  return started(transport_, {.kind = CollectiveKind::gather, .root = root, .pieces = pieces});
}

Work Communicator::scatter(std::span<const Piece> pieces, int root) const {
  return started(transport_, {.kind = CollectiveKind::scatter, .root = root, .pieces = pieces});
}

Work Communicator::all_to_all(const Piece& piece, std::span<const int64_t> recv_counts) const {
  return started(
      transport_,
      {.kind = CollectiveKind::all_to_all, .pieces = {&piece, 1}, .recv_counts = recv_counts});
}

Work Communicator::send(const void* data, int64_t count, DType dtype, int to, int tag) const {
  const Piece piece{.send = data, .dtype = dtype, .counts = {&count, 1}};
  return started(transport_,
                 {.kind = CollectiveKind::send, .root = to, .tag = tag, .pieces = {&piece, 1}});
}

Work Communicator::recv(void* data, int64_t count, DType dtype, int from, int tag) const {
  const Piece piece{.recv = data, .dtype = dtype, .counts = {&count, 1}};
  return started(transport_,
                 {.kind = CollectiveKind::recv, .root = from, .tag = tag, .pieces = {&piece, 1}});
}

Communicator Communicator::split(int color, int key, std::string name) const {
  return Communicator(transport_of(transport_).split(color, key, std::move(name)));
}

Communicator Communicator::subgroup(std::span<const int> ranks, std::string name) const {
  Transport& transport = transport_of(transport_);
  check_subgroup(transport, ranks);
  return Communicator(transport.subgroup(ranks, std::move(name)));
}

void fail_on_all_ranks(const Communicator& ranks, const std::string& mistake) {
  int64_t first = mistake.empty() ? ranks.size() : ranks.rank();
  const int64_t one = 1;
  const Piece piece{.send = &first, .recv = &first, .dtype = DType::i64, .counts = {&one, 1}};
  ranks.all_reduce({&piece, 1}, ReduceOp::min).wait();
  if (first < ranks.size()) fail(ranks.broadcast(mistake, static_cast<int>(first)));
}

static constexpr char kFound = 'f', kCallersMistake = 'c', kFailed = 's';

/// Encodes the result or the exception of one rank as a message to the others.
static std::string found_or_thrown(const std::function<std::string()>& find) {
  try {
    return kFound + find();
  } catch (const std::invalid_argument& error) {
    return std::string(1, kCallersMistake) + error.what();
  } catch (const std::exception& error) {
    return std::string(1, kFailed) + error.what();
  }
}

std::string told_by_first(const Communicator& world, const std::function<std::string()>& find) {
  // Also what it throws: the others would take its next collective for the answer.
  const std::string told = world.broadcast(world.rank() == 0 ? found_or_thrown(find) : "", 0);
  const std::string text = told.substr(1);
  if (told[0] == kCallersMistake) throw_invalid_argument(text);
  if (told[0] == kFailed) throw_runtime_error(text);
  return text;
}

}  // namespace weft

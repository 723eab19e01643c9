// SPDX-License-Identifier: Apache-2.0
#include "weft/communicator.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "src/base/ticks.h"
#include "src/comm/collective_parts.h"
#include "weft/error.h"
#include "weft/extend/flight.h"
#include "weft/messages.h"

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

/// Ends a call. While its own thread is in a call, which may use it, the call is left to that one.
static void end(std::unique_ptr<Work::State>& state) noexcept {
  if (!state) return;
  if (!state->may_end_here()) return static_cast<void>(state.release());
  drop(*state);
}

Work& Work::operator=(Work&& other) noexcept {
  if (state_ != other.state_) end(state_);
  state_ = std::move(other.state_);
  return *this;
}

Work::~Work() { end(state_); }

/// Nanoseconds that this thread has spent in Work::wait.
static thread_local int64_t waited = 0;

void Work::wait() {
  if (!state_) return;
  const RankThread::Call call(state_->rank_thread(), "wait");
  const int64_t begin = steady_nanoseconds();
  state_->wait();
  waited += steady_nanoseconds() - begin;
}

double seconds_in_waits() { return 1e-9 * static_cast<double>(waited); }

bool Work::test() {
  if (!state_) return true;
  const RankThread::Call call(state_->rank_thread(), "test");
  return state_->test();
}

static Transport& transport_of(const std::shared_ptr<Transport>& transport) {
  if (!transport) fail("communicator: this rank is not in the group, expected a rank of it");
  return *transport;
}

static bool has_one_count(CollectiveKind kind) {
  return kind == CollectiveKind::broadcast || kind == CollectiveKind::all_reduce ||
         is_message(kind);
}

static void check_counts(const Collective& call, std::span<const int64_t> counts, size_t expected) {
  if (counts.size() != expected) {
    fail(name_of(call.kind), ": number of counts of a piece is ", counts.size(), ", expected ",
         expected);
  }
  for (const int64_t count : counts) {
    if (count < 0) fail(name_of(call.kind), ": count must be at least 0, got ", count);
  }
}

/// The part and the whole may share memory only if the part lies at its own position in the whole.
static void check_overlap(const Collective& call, const Piece& piece, PieceSizes sizes, int rank) {
  // The root of a broadcast need not receive: it does when it has a `recv`.
  const bool is_root = call.kind == CollectiveKind::broadcast && call.root == rank;
  if (is_root && piece.recv) sizes.recv = sizes.send;
  if (sizes.send == 0 || sizes.recv == 0) return;
  const auto send = reinterpret_cast<uintptr_t>(piece.send);
  const auto recv = reinterpret_cast<uintptr_t>(piece.recv);
  const auto send_end = send + static_cast<uintptr_t>(sizes.send) * size_of(piece.dtype);
  const auto recv_end = recv + static_cast<uintptr_t>(sizes.recv) * size_of(piece.recv_dtype);
  if (send_end <= recv || recv_end <= send) return;
  const auto offset = static_cast<uintptr_t>(sizes.own_offset) * size_of(piece.dtype);
  const bool send_is_part = sizes.send <= sizes.recv;
  const bool own_place = send_is_part ? send == recv + offset : recv == send + offset;
  if (!own_place || piece.dtype != piece.recv_dtype || call.kind == CollectiveKind::all_to_all ||
      piece.accumulate) {
    fail(name_of(call.kind),
         ": send and recv overlap, expected separate memory, or the place of this rank in the "
         "result");
  }
}

static void check_piece(const Collective& call, const Piece& piece, int rank, int size) {
  const std::string_view name = name_of(call.kind);
  check_counts(call, piece.counts, has_one_count(call.kind) ? 1 : static_cast<size_t>(size));
  if (is_reduction(call.kind)) {
    check_reduction(name.data(), call.op, piece.dtype, piece.recv_dtype);
  } else if (piece.recv_dtype != piece.dtype) {
    fail(name, ": recv_dtype is ", piece.recv_dtype, ", expected ", piece.dtype,
         ", the dtype; only reductions convert");
  }
  if (piece.accumulate && call.kind != CollectiveKind::reduce_scatter) {
    fail(name, ": accumulate is true, expected false; only reduce_scatter accumulates");
  }
  const PieceSizes sizes = sizes_of(call, piece, rank);
  if (sizes.send > 0 && !piece.send)
    fail(name, ": send is null, expected memory of ", sizes.send, " elements");
  if (sizes.recv > 0 && !piece.recv)
    fail(name, ": recv is null, expected memory of ", sizes.recv, " elements");
  check_overlap(call, piece, sizes, rank);
}

/// Throws std::invalid_argument when a rank of a group of `size` cannot make this call: a root
/// outside the group, counts whose number differs from the group's size, missing or overlapping
/// memory, or an unsupported reduction.
static void check_collective(const Collective& call, int rank, int size) {
  if (call.root < 0 || call.root >= size) {
    fail(name_of(call.kind), ": rank is ", call.root, ", expected 0 to ", size - 1);
  }
  if (call.kind == CollectiveKind::all_to_all) {
    check_counts(call, call.recv_counts, static_cast<size_t>(size));
  }
  for (const Piece& piece : call.pieces) check_piece(call, piece, rank, size);
  if (call.kind == CollectiveKind::all_to_all) {
    const auto own = static_cast<size_t>(rank);
    const int64_t sent = call.pieces[0].counts[own], expected = call.recv_counts[own];
    if (sent != expected) {
      fail("all_to_all: number of elements that rank ", rank, " sends to itself is ", sent,
           ", expected ", expected, ", the number that it receives from itself");
    }
  }
  if (is_message(call.kind) && call.root == rank) {
    fail(name_of(call.kind), ": the other rank is ", rank, ", expected another than this one");
  }
}

/// Checks a call. Returns false in a group of one rank, which neither waits nor counts traffic and
/// has made the call.
static bool needs_others(const Transport& transport, const Collective& call) {
  check_collective(call, transport.rank(), transport.size());
  if (transport.size() > 1) return true;
  std::vector<const void*> shown(1);
  run_with_absent_peers(call, 0, shown);
  return false;
}

static Work started(const std::shared_ptr<Transport>& group, const Collective& call) {
  Transport& transport = transport_of(group);
  const GroupCall scope(transport, call.kind);
  if (!needs_others(transport, call)) return {};
  return Work::State::started(transport.start(call), transport.rank_thread());
}

/// Makes a call with one piece, numbers of the host.
static void run(const std::shared_ptr<Transport>& group, Collective call, const int64_t* send,
                int64_t* recv, std::span<const int64_t> counts) {
  const Piece piece{.send = send, .recv = recv, .dtype = DType::i64, .counts = counts};
  call.pieces = {&piece, 1};
  Transport& transport = transport_of(group);
  const GroupCall scope(transport, call.kind);
  if (needs_others(transport, call)) transport.run(call);
}

int Communicator::rank() const { return transport_of(transport_).rank(); }
int Communicator::size() const { return transport_of(transport_).size(); }
const std::string& Communicator::name() const { return transport_of(transport_).name(); }

bool Communicator::contains(const Communicator& other) const {
  const Transport& all = transport_of(transport_);
  const Transport& some = transport_of(other.transport_);
  if (some.size() == 1) return true;  // this rank
  if (all.world() != some.world()) return false;
  if (!all.world()) return true;
  const std::vector<int>& among = all.members()->world_ranks;
  return std::ranges::all_of(some.members()->world_ranks, [&](int rank) {
    return std::ranges::find(among, rank) != among.end();
  });
}

const CommunicatorTraffic& Communicator::traffic() const {
  return transport_of(transport_).traffic();
}

void Communicator::abort(const std::string& reason) const {
  transport_of(transport_).abort(reason);
}

void Communicator::barrier() const {
  Transport& transport = transport_of(transport_);
  const GroupCall scope(transport, CollectiveKind::barrier);
  if (transport.size() > 1) transport.run({.kind = CollectiveKind::barrier});
}

Work Communicator::broadcast(std::span<const Piece> pieces, int root) const {
  return started(transport_, {.kind = CollectiveKind::broadcast, .root = root, .pieces = pieces});
}

/// A call that consists of several collectives.
static RankThread::Call several(const Communicator& group, const char* what) {
  return {*transport_of(group.transport()).rank_thread(), what};
}

/// Returns a group that `made` is an end of, used by the same thread as `parent`.
static Communicator within(const Transport& parent, std::shared_ptr<Transport> made) {
  if (made) made->share_thread_of(parent);
  return Communicator(std::move(made));
}

std::string Communicator::broadcast(std::string text, int root) const {
  const RankThread::Call scope = several(*this, "broadcast");
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

int64_t Communicator::all_reduce_number(int64_t number, ReduceOp op) const {
  all_reduce_numbers(std::span(&number, 1), op);
  return number;
}

void Communicator::all_reduce_numbers(std::span<int64_t> numbers, ReduceOp op) const {
  const auto count = static_cast<int64_t>(numbers.size());
  run(transport_, {.kind = CollectiveKind::all_reduce, .op = op}, numbers.data(), numbers.data(),
      {&count, 1});
}

std::vector<int64_t> Communicator::all_gather_numbers(std::span<const int64_t> numbers) const {
  const std::vector<int64_t> counts(static_cast<size_t>(size()),
                                    static_cast<int64_t>(numbers.size()));
  std::vector<int64_t> all(counts.size() * numbers.size());
  run(transport_, {.kind = CollectiveKind::all_gather}, numbers.data(), all.data(), counts);
  return all;
}

std::vector<int64_t> Communicator::all_to_all_numbers(std::span<const int64_t> numbers) const {
  const std::vector<int64_t> ones(numbers.size(), 1);
  std::vector<int64_t> received(numbers.size());
  run(transport_, {.kind = CollectiveKind::all_to_all, .recv_counts = ones}, numbers.data(),
      received.data(), ones);
  return received;
}

Work send(const Communicator& ranks, const Piece& piece, int to, int tag) {
  return started(ranks.transport(),
                 {.kind = CollectiveKind::send, .root = to, .tag = tag, .pieces = {&piece, 1}});
}

Work receive(const Communicator& ranks, const Piece& piece, int from, int tag) {
  return started(ranks.transport(),
                 {.kind = CollectiveKind::recv, .root = from, .tag = tag, .pieces = {&piece, 1}});
}

Work Communicator::send(const void* data, int64_t count, DType dtype, int to, int tag) const {
  return weft::send(*this, {.send = data, .dtype = dtype, .counts = {&count, 1}}, to, tag);
}

Work Communicator::recv(void* data, int64_t count, DType dtype, int from, int tag) const {
  return receive(*this, {.recv = data, .dtype = dtype, .counts = {&count, 1}}, from, tag);
}

Communicator Communicator::split(int color, int key, std::string name) const {
  const RankThread::Call scope = several(*this, "split");
  return within(*transport_, transport_->split(color, key, std::move(name)));
}

/// Throws std::invalid_argument unless `ranks` are distinct ranks of `parent` and include this one.
static void check_subgroup(const Transport& parent, std::span<const int> ranks) {
  std::vector<int> sorted(ranks.begin(), ranks.end());
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] < 0 || sorted[i] >= parent.size()) {
      fail("subgroup: rank is ", sorted[i], ", expected 0 to ", parent.size() - 1);
    }
    if (i > 0 && sorted[i] == sorted[i - 1])
      fail("subgroup: rank ", sorted[i], " is named twice, expected once");
  }
  if (!std::binary_search(sorted.begin(), sorted.end(), parent.rank())) {
    fail("subgroup: the ranks do not include rank ", parent.rank(),
         ", expected the calling rank among them");
  }
}

Communicator Communicator::subgroup(std::span<const int> ranks, std::string name) const {
  Transport& transport = transport_of(transport_);
  const RankThread::Call scope = several(*this, "subgroup");
  check_subgroup(transport, ranks);
  return within(transport, transport.subgroup(ranks, std::move(name)));
}

void fail_on_all_ranks(const Communicator& ranks, const std::string& mistake) {
  // Predicted traffic leaves this number out, thus measured traffic does too.
  const RankThread::Call scope = several(ranks, "fail_on_all_ranks");
  struct Uncounted {
    Transport& transport;
    explicit Uncounted(Transport& of) : transport(of) { transport.count(false); }
    ~Uncounted() { transport.count(true); }
  };
  const int64_t first = [&] {
    const Uncounted uncounted(transport_of(ranks.transport()));
    return ranks.all_reduce_number(mistake.empty() ? ranks.size() : ranks.rank(), ReduceOp::min);
  }();
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
  const RankThread::Call scope = several(world, "told_by_first");
  // Also what it throws: the others would take its next collective for the answer.
  const std::string told = world.broadcast(world.rank() == 0 ? found_or_thrown(find) : "", 0);
  const std::string text = told.substr(1);
  if (told[0] == kCallersMistake) throw_invalid_argument(text);
  if (told[0] == kFailed) throw_runtime_error(text);
  return text;
}

}  // namespace weft

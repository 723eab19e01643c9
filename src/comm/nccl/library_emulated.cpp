// SPDX-License-Identifier: Apache-2.0
#include "src/comm/nccl/library.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "src/comm/collective_parts.h"
#include "src/device/cuda/runtime.h"
#include "src/device/emulated/device.h"
#include "weft/error.h"

namespace weft::nccl {

using cuda::emulated::DeviceMemoryOpen;
using cuda::emulated::Mark;
using cuda::emulated::Queue;

namespace {

std::atomic<bool> hangs_next{false}, fails_next{false};

/// One rank's part in a meeting.
struct Side {
  int rank;
  Move move;
  /// What it sends, copied when its stream reaches the move.
  std::vector<std::byte> sent = {};
  /// The work of its stream up to that copy.
  Mark copied = {};
};

/// A move that ranks do together: all of a collective, or a message's sender and receiver.
struct Meeting {
  explicit Meeting(size_t ranks) : sides(ranks) {}
  std::vector<std::unique_ptr<Side>> sides;
  bool hangs = false;

  bool is_complete() const {
    return std::all_of(sides.begin(), sides.end(),
                       [](const auto& part) { return part != nullptr; });
  }
  /// Whether all ranks make the same call; if not, NCCL would hang or compute wrong results.
  bool agrees() const {
    const Move& first = sides[0]->move;
    return std::all_of(sides.begin(), sides.end(), [&](const auto& part) {
      const Move& move = part->move;
      const bool is_message = first.kind == Move::Kind::send;
      return (is_message || (move.kind == first.kind && move.root == first.root)) &&
             move.count == first.count && move.dtype == first.dtype && move.op == first.op;
    });
  }
};

struct Group {
  explicit Group(int size) : ranks(size), gone(static_cast<size_t>(size)) {}
  const int ranks;
  std::mutex mutex;
  int joined = 0;
  /// Keyed by sender, receiver and number of the message; collectives by number only.
  std::map<std::tuple<int, int, uint64_t>, std::shared_ptr<Meeting>> open;
  /// Ranks that have aborted.
  std::vector<std::atomic<bool>> gone;
};

/// One rank's communicator.
struct End {
  std::shared_ptr<Group> group;
  int rank;
  uint64_t collectives = 0;
  std::map<std::pair<int, int>, uint64_t> messages = {};
  std::string error = {};
  /// The moves being queued.
  std::shared_ptr<Queue> queue = {};
  std::vector<std::pair<std::shared_ptr<Meeting>, Side*>> moves = {};
};

size_t bytes_of(const Move& move) { return static_cast<size_t>(move.count) * size_of(move.dtype); }

/// Copies the data that a rank sends aside: its stream may overwrite it before others read it.
void copy_sent(Side& own, size_t ranks) {
  if (own.move.kind == Move::Kind::recv) return;
  const DeviceMemoryOpen open;
  const auto* sent = static_cast<const std::byte*>(own.move.send);
  const bool sends_parts = own.move.kind == Move::Kind::reduce_scatter;
  own.sent.assign(sent, sent + bytes_of(own.move) * (sends_parts ? ranks : 1));
}

/// Writes what a rank receives.
void receive(const Meeting& meeting, const Side& own) {
  const DeviceMemoryOpen open;
  const Move& move = own.move;
  const size_t bytes = bytes_of(move);
  auto* to = static_cast<std::byte*>(move.recv);
  const auto copy = [&](size_t from) {
    std::memcpy(to, meeting.sides[from]->sent.data(), bytes);
    to += bytes;
  };
  // In reverse rank order, because NCCL's order differs from weft's too.
  const auto reduce = [&](size_t offset) {
    std::vector<const void*> sources;
    for (auto part = meeting.sides.rbegin(); part != meeting.sides.rend(); ++part) {
      sources.push_back((*part)->sent.data() + offset);
    }
    reduce_n(move.op, move.dtype, sources, {to, move.dtype, false, cpu}, move.count);
  };
  switch (move.kind) {
    case Move::Kind::all_gather:
      for (size_t r = 0; r < meeting.sides.size(); ++r) copy(r);
      break;
    case Move::Kind::reduce_scatter: return reduce(static_cast<size_t>(own.rank) * bytes);
    case Move::Kind::all_reduce: return reduce(0);
    case Move::Kind::broadcast: return copy(static_cast<size_t>(move.root));
    case Move::Kind::recv: return copy(0);
    case Move::Kind::send: break;
  }
}

void await_abort(const Group& group, int rank) {
  while (!group.gone[static_cast<size_t>(rank)]) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// Adds a move of this rank to those being queued.
void add_move(End& end, const Move& move) {
  const cuda::emulated::QueuedOnly scope;  // as in `advance`
  std::tuple<int, int, uint64_t> key{-1, -1, 0};
  size_t ranks = static_cast<size_t>(end.group->ranks), place = static_cast<size_t>(end.rank);
  if (move.kind == Move::Kind::send || move.kind == Move::Kind::recv) {
    const bool sends = move.kind == Move::Kind::send;
    const std::pair<int, int> ends =
        sends ? std::pair(end.rank, move.root) : std::pair(move.root, end.rank);
    key = {ends.first, ends.second, ++end.messages[ends]};
    ranks = 2;
    place = sends ? 0 : 1;
  } else {
    std::get<2>(key) = ++end.collectives;
  }
  std::shared_ptr<Meeting>& meeting = end.group->open[key];
  if (!meeting) {
    meeting = std::make_shared<Meeting>(ranks);
    meeting->hangs = hangs_next.exchange(false);
  }
  const std::shared_ptr<Meeting> found = meeting;
  found->sides[place] = std::make_unique<Side>(Side{end.rank, move});
  Side* const own = found->sides[place].get();
  cuda::emulated::enqueue(end.queue, [found, own, ranks] { copy_sent(*own, ranks); });
  own->copied = cuda::emulated::mark_of(end.queue);
  end.moves.emplace_back(found, own);
  if (found->is_complete()) {
    end.group->open.erase(key);
    if (!found->agrees()) found->hangs = true;
  }
}

/// Queues the moves when all of their ranks have called. They wait for everything that the other
/// ranks' streams had queued by then.
void advance(End& end) {
  for (const auto& [meeting, part] : end.moves) {
    if (!meeting->is_complete()) return;
  }
  // A hanging operation must not run here, because its owner could not abort it.
  const cuda::emulated::QueuedOnly scope;
  for (const auto& [meeting, part] : end.moves) {
    for (const auto& other : meeting->sides) {
      if (other.get() != part) cuda::emulated::enqueue_wait(end.queue, other->copied);
    }
    cuda::emulated::enqueue(end.queue,
                            [meeting = meeting, part = part, group = end.group, rank = end.rank] {
                              if (meeting->hangs) return await_abort(*group, rank);
                              receive(*meeting, *part);
                            });
  }
  end.moves.clear();
}

/// A record may outlive the communicator.
const std::shared_ptr<End>& shared_end(void* communicator) {
  return *static_cast<std::shared_ptr<End>*>(communicator);
}

End& end_of(void* communicator) { return *shared_end(communicator); }

}  // namespace

namespace emulated {

void hang_next() { hangs_next = true; }
void fail_next() { fails_next = true; }

}  // namespace emulated

bool is_present() { return true; }

UniqueId new_id() {
  static std::atomic<uint64_t> ids{0};
  const std::array<uint64_t, 2> numbers{static_cast<uint64_t>(getpid()), ++ids};
  UniqueId id{};
  std::memcpy(id.data(), numbers.data(), sizeof numbers);
  return id;
}

void* begin(int ranks, const UniqueId& id, int rank, int) {
  uint64_t process = 0;
  std::memcpy(&process, id.data(), sizeof process);
  if (process != static_cast<uint64_t>(getpid())) {
    fail_call("begin", "the emulated NCCL is for ranks that are threads of one process");
  }
  // Groups that not all ranks have joined yet.
  static std::mutex mutex;
  static std::map<UniqueId, std::shared_ptr<Group>> groups;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Group>& group = groups[id];
  if (!group) group = std::make_shared<Group>(ranks);
  const std::shared_ptr<Group> joined = group;
  const std::lock_guard group_lock(joined->mutex);
  if (++joined->joined == ranks) groups.erase(id);
  return new std::shared_ptr<End>(std::make_shared<End>(End{joined, rank}));
}

/// A step of a record. As with a CUDA graph, replaying it waits for the other ranks.
static void play(const std::shared_ptr<End>& end, std::span<const Move> moves,
                 const std::shared_ptr<Queue>& queue) {
  const auto is_over = [&] {
    const std::lock_guard lock(end->group->mutex);
    advance(*end);
    return end->moves.empty() || end->group->gone[static_cast<size_t>(end->rank)];
  };
  {
    const std::lock_guard lock(end->group->mutex);
    end->queue = queue;
    for (const Move& move : moves) add_move(*end, move);
  }
  while (!is_over()) std::this_thread::yield();
}

void queue(void* communicator, std::span<const Move> moves, const Stream& stream) {
  if (cuda::is_capturing()) {
    return cuda::emulated::record(
        [end = shared_end(communicator), all = std::vector(moves.begin(), moves.end())](
            const std::shared_ptr<Queue>& queue) { play(end, all, queue); });
  }
  End& end = end_of(communicator);
  const std::lock_guard lock(end.group->mutex);
  if (fails_next.exchange(false)) {
    end.error = "unhandled system error (2): the emulated link is broken";
    return;
  }
  end.queue = *static_cast<std::shared_ptr<Queue>*>(stream.handle);
  for (const Move& move : moves) add_move(end, move);
}

Status status(void* communicator) {
  End& end = end_of(communicator);
  // The lock's holder may be waiting for a hanging device.
  const std::unique_lock lock(end.group->mutex, std::try_to_lock);
  if (!lock.owns_lock()) return {};
  if (!end.error.empty()) return {.error = end.error};
  if (end.group->joined < end.group->ranks) return {};
  advance(end);
  return {.is_ready = end.moves.empty()};
}

void finish(void*) {}

void destroy(void* communicator) noexcept {
  delete static_cast<std::shared_ptr<End>*>(communicator);
}

void abort(void* communicator) noexcept {
  End& end = end_of(communicator);
  end.group->gone[static_cast<size_t>(end.rank)] = true;
  destroy(communicator);
}

}  // namespace weft::nccl

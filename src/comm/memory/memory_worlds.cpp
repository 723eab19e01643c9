// SPDX-License-Identifier: Apache-2.0
#include "src/comm/memory/memory_worlds.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "src/comm/flight/record.h"
#include "src/comm/memory/memory_transport.h"
#include "src/comm/waiter.h"
#include "weft/export.h"

namespace weft {

/// How long after the deadline a rank may run that has not noticed a failure.
static constexpr std::chrono::milliseconds kGrace{2000};

std::vector<std::shared_ptr<Transport>> ThreadsWorld::transports() {
  Members members{.name = "world", .world_ranks = std::vector<int>(static_cast<size_t>(ranks()))};
  std::iota(members.world_ranks.begin(), members.world_ranks.end(), 0);
  std::vector<std::shared_ptr<Transport>> all;
  for (const int rank : members.world_ranks) {
    all.push_back(std::make_shared<MemoryTransport>(group(members), rank));
  }
  return all;
}

/// Allocates zeros in whole cache lines; fresh pages take no memory until they are written.
static std::shared_ptr<std::byte> zeros(size_t bytes) {
  constexpr size_t line = 64;
  size_t room = bytes + line;
  const std::shared_ptr<void> memory(std::calloc(room, 1), std::free);
  if (!memory) throw std::bad_alloc();
  void* first = memory.get();
  return {memory, static_cast<std::byte*>(std::align(line, bytes, first, room))};
}

std::shared_ptr<MemoryGroup> ThreadsWorld::group(Members members) {
  const std::lock_guard lock(mutex_);
  GroupEntry& entry = groups_[members.id];
  if (!entry.group) {
    members.world = shared_from_this();
    const size_t bytes = MemoryGroup::bytes_for(members.size());
    entry.group = std::make_shared<MemoryGroup>(std::move(members), zeros(bytes));
  }
  const std::shared_ptr<MemoryGroup> group = entry.group;
  if (++entry.taken == group->size()) groups_.erase(group->id);
  return group;
}

void ThreadsWorld::on_failure(const std::exception_ptr& cause) {
  const std::lock_guard lock(mutex_);
  is_failed_ = true;
  cause_ = cause;
  failed_at_ = std::chrono::steady_clock::now();
  changed_.notify_all();
}

void ThreadsWorld::body_threw(int rank, const std::exception_ptr& cause) {
  abort_for_exception(rank, cause);
  if (!is_aborted() || failure().found_by != rank) return;
  const std::lock_guard lock(mutex_);
  // The exception that made a rank give up a collective is known only here.
  if (!cause_) cause_ = cause;
}

void ThreadsWorld::end(int rank) {
  const std::lock_guard lock(mutex_);
  World::end(rank);
  ++ended_count_;
  changed_.notify_all();
}

void ThreadsWorld::await_all() {
  std::unique_lock lock(mutex_);
  const auto all_ended = [&] { return ended_count_ == ranks(); };
  changed_.wait(lock, [&] { return all_ended() || is_failed_; });
  if (all_ended()) return;
  const auto left = failure().was_late ? kGrace : deadline() + kGrace;
  if (!changed_.wait_until(lock, failed_at_ + left, all_ended)) end_late(lock);
}

void ThreadsWorld::end_late(const std::unique_lock<std::mutex>&) const {
  std::string late;
  for (int rank = 0; rank < ranks(); ++rank) {
    if (!has_ended(rank)) late += concat(late.empty() ? "" : ", ", rank);
  }
  write_flight_records(failure().text);
  end_process_(concat("ending the process, because rank ", late, " neither ended nor noticed that ",
                      failure().text));
}

void ThreadsWorld::rethrow() const {
  if (!is_aborted()) return;
  if (cause_) std::rethrow_exception(cause_);
  const WorldFailure failed = failure();
  throw CommError(failed.text, failed.rank, "abort", 0);
}

static constexpr std::chrono::milliseconds kLookEvery{2};
static constexpr size_t kSegmentPage = 4096;

/// A group that some of its members have made and others have not yet.
struct GroupUnderWay {
  uint64_t id;
  uint64_t offset;
  /// The members that have made it; 0: a free entry.
  int32_t taken;
};

/// The state of a world that the processes of a host share. All zeros: a world that has begun. It
/// is followed by the state of each rank, and then by the groups.
struct WorldSegment {
  WorldState state;
  std::array<std::atomic<int32_t>, SharedMemory::kMaxRegions> processes;
  std::atomic<uint32_t> lock;
  /// Guarded by the lock.
  uint64_t used;
  std::array<GroupUnderWay, 1024> under_way;

  RankState* ranks() { return reinterpret_cast<RankState*>(this + 1); }
};

static WorldSegment& segment_in(const SharedMemory& memory) {
  return *reinterpret_cast<WorldSegment*>(memory.data());
}

/// Precedes the memory of a group; its last user releases that.
struct alignas(64) GroupHead {
  std::atomic<int32_t> left;
};

/// Held for a few instructions. If its process dies meanwhile, the others wait, up to the deadline.
class SegmentLock : NotCopied {
 public:
  SegmentLock(WorldSegment& segment, const World& world) : segment_(segment) {
    const bool is_held = wait_until(world.spins(), world.deadline(), [&] {
      if (segment_.lock.exchange(1, std::memory_order_acquire) == 0) return true;
      if (world.is_aborted()) throw world.echo("subgroup", "subgroup", 0);
      return false;
    });
    if (!is_held) {
      throw CommError("world: the table of groups stayed locked; a rank died with it", -1,
                      "subgroup", 0);
    }
  }
  ~SegmentLock() { segment_.lock.store(0, std::memory_order_release); }

 private:
  WorldSegment& segment_;
};

ProcessWorld::ProcessWorld(int rank, int ranks, std::vector<int> here,
                           std::chrono::milliseconds deadline,
                           std::shared_ptr<SharedMemory> segment, SharedHeap& heap,
                           EndProcess end_process)
    : World(ranks, deadline, static_cast<int>(here.size()), {segment, &segment_in(*segment).state},
            {segment, segment_in(*segment).ranks()}),
      rank_(rank),
      here_(std::move(here)),
      memory_(std::move(segment)),
      segment_(segment_in(*memory_)),
      heap_(heap),
      end_process_(end_process),
      gone_(here_.size()) {
  const auto index = static_cast<size_t>(local_index(rank));
  segment_.processes[index].store(getpid(), std::memory_order_relaxed);
}

int ProcessWorld::local_index(int rank) const {
  const auto found = std::find(here_.begin(), here_.end(), rank);
  return found == here_.end() ? -1 : static_cast<int>(found - here_.begin());
}

std::shared_ptr<Transport> ProcessWorld::world_transport() {
  return std::make_shared<MemoryTransport>(group({.name = "world", .world_ranks = here_}),
                                           local_index(rank_));
}

void ProcessWorld::on_stuck_reader(int rank) const {
  end_process_(concat("rank ", rank_, " ends, because rank ", rank, " still reads its memory ",
                      reader_deadline().count(), " ms after: ", failure().text));
}

bool ProcessWorld::shares_memory(std::span<const int> ranks) const {
  return std::all_of(ranks.begin(), ranks.end(), [&](int rank) { return local_index(rank) >= 0; });
}

bool ProcessWorld::is_gone(int rank) const {
  const int index = local_index(rank);
  if (index < 0 || rank == rank_) return false;
  const std::lock_guard guard(looking_);
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_ >= kLookEvery) {
    looked_ = now;
    for (size_t p = 0; p < here_.size(); ++p) {
      if (here_[p] == rank_ || gone_[p]) continue;
      gone_[p] = !memory_->is_index_locked(static_cast<int>(p));
    }
  }
  return gone_[static_cast<size_t>(index)];
}

std::string ProcessWorld::end_in_words(int rank) const {
  if (says_ended(rank)) return "ended";
  const auto index = static_cast<size_t>(local_index(rank));
  const int32_t process = segment_.processes[index].load(std::memory_order_relaxed);
  if (process == 0) return "is gone (its process died or exited while it connected)";
  return concat("is gone (process ", process, " died or exited)");
}

/// Allocates zeroed memory of the segment, which is never divided again.
std::byte* ProcessWorld::cut(size_t bytes) {
  if (segment_.used == 0) {
    segment_.used = sizeof(WorldSegment) + static_cast<size_t>(ranks()) * sizeof(RankState);
  }
  const uint64_t begin = (segment_.used + kSegmentPage - 1) / kSegmentPage * kSegmentPage;
  if (begin + bytes > memory_->bytes())
    fail_call("subgroup", "the shared memory has no room for more groups");
  segment_.used = begin + bytes;
  return memory_->data() + begin;
}

static void leave_group(std::byte* memory, size_t bytes) {
  auto* head = reinterpret_cast<GroupHead*>(memory - sizeof(GroupHead));
  if (head->left.fetch_sub(1, std::memory_order_acq_rel) == 1) madvise(head, bytes, MADV_REMOVE);
}

std::shared_ptr<MemoryGroup> ProcessWorld::group(Members members) {
  const int ranks = members.size();
  const size_t bytes = sizeof(GroupHead) + MemoryGroup::bytes_for(ranks);
  uint64_t offset = 0;
  {
    const SegmentLock lock(segment_, *this);
    auto& entries = segment_.under_way;
    const auto is_it = [&](const GroupUnderWay& entry) {
      return entry.taken > 0 && entry.id == members.id;
    };
    auto found = std::find_if(entries.begin(), entries.end(), is_it);
    if (found == entries.end()) {
      found = std::find_if(entries.begin(), entries.end(),
                           [](const GroupUnderWay& entry) { return entry.taken == 0; });
      if (found == entries.end()) {
        fail_call("subgroup", entries.size(), " groups wait for members that did not make them");
      }
      std::byte* memory = cut(bytes);
      new (memory) GroupHead{ranks};
      *found = {members.id, static_cast<uint64_t>(memory - memory_->data()), 0};
    }
    offset = found->offset;
    if (++found->taken == ranks) *found = {};
  }
  std::byte* data = memory_->data() + offset + sizeof(GroupHead);
  const std::shared_ptr<std::byte> memory(
      data, [keep = memory_, bytes](std::byte* at) { leave_group(at, bytes); });
  members.world = shared_from_this();
  return std::make_shared<MemoryGroup>(std::move(members), memory, &heap_);
}

}  // namespace weft

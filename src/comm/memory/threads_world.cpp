// SPDX-License-Identifier: Apache-2.0
#include "src/comm/memory/threads_world.h"

#include <cstdlib>
#include <numeric>

#include "src/comm/flight/record.h"
#include "src/comm/memory/memory_transport.h"

namespace weft {

/// How long after the deadline a rank may run that has not noticed a failure.
static constexpr std::chrono::milliseconds kGrace{2000};

ThreadsWorld::ThreadsWorld(int ranks, std::chrono::milliseconds deadline,
                           std::unique_ptr<Shared> shared)
    : World(ranks, deadline, ranks, shared->state, shared->ranks.get()),
      shared_(std::move(shared)) {}

std::vector<std::shared_ptr<Transport>> ThreadsWorld::transports() {
  std::vector<int> members(static_cast<size_t>(ranks()));
  std::iota(members.begin(), members.end(), 0);
  const auto group = make_group(members, "world");
  std::vector<std::shared_ptr<Transport>> all;
  for (const int rank : members) all.push_back(std::make_shared<MemoryTransport>(group, rank));
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

std::shared_ptr<MemoryGroup> ThreadsWorld::make_group(const std::vector<int>& members,
                                                      const std::string& name) {
  const size_t bytes = MemoryGroup::bytes_for(static_cast<int>(members.size()));
  return std::make_shared<MemoryGroup>(shared_from_this(), Members{next_group_++, members, name},
                                       zeros(bytes));
}

std::shared_ptr<MemoryGroup> ThreadsWorld::group(const std::vector<int64_t>& key,
                                                 const std::vector<int>& members,
                                                 const std::string& name) {
  const std::lock_guard lock(mutex_);
  GroupEntry& entry = groups_[key];
  if (!entry.group) entry.group = make_group(members, name);
  std::shared_ptr<MemoryGroup> group = entry.group;
  if (++entry.taken == group->size()) groups_.erase(key);
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
  const auto left = shared_->state.was_late ? kGrace : deadline() + kGrace;
  if (!changed_.wait_until(lock, failed_at_ + left, all_ended)) end_late(lock);
}

void ThreadsWorld::end_late(const std::unique_lock<std::mutex>&) const {
  std::string late;
  for (int rank = 0; rank < ranks(); ++rank) {
    if (!has_ended(rank)) late += concat(late.empty() ? "" : ", ", rank);
  }
  write_flight_records(failure().text);
  end_process(concat("ending the process, because rank ", late, " neither ended nor noticed that ",
                     failure().text));
}

void ThreadsWorld::rethrow() const {
  if (!is_aborted()) return;
  if (cause_) std::rethrow_exception(cause_);
  const WorldFailure failed = failure();
  throw CommError(failed.text, failed.rank, "abort", 0);
}

}  // namespace weft

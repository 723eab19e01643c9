// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <vector>

#include "src/comm/memory/memory_group.h"
#include "src/comm/transport.h"
#include "src/comm/world.h"
#include "src/device/shared_memory.h"

namespace weft {

/// The world of a `run_ranks`, whose ranks are threads of this process.
class ThreadsWorld final : public World, public std::enable_shared_from_this<ThreadsWorld> {
 public:
  ThreadsWorld(int ranks, std::chrono::milliseconds deadline, EndProcess end_process)
      : World(ranks, deadline, ranks, std::make_shared<WorldState>(),
              std::shared_ptr<RankState[]>(new RankState[static_cast<size_t>(ranks)])),
        end_process_(end_process) {}

  /// The transports of the world communicator, one for each rank.
  std::vector<std::shared_ptr<Transport>> transports();

  /// Records that the body of `rank` threw `cause`.
  void body_threw(int rank, const std::exception_ptr& cause);
  void end(int rank) override;
  /// Returns when all ranks have ended. Ends the process when a rank neither ends nor notices a
  /// failure within the deadline and a grace time.
  void await_all();
  /// Throws the first failure, if there is one.
  void rethrow() const;

  std::shared_ptr<MemoryGroup> group(Members members) override;
  /// Releases groups that not all members joined.
  void forget_groups() { groups_.clear(); }

 private:
  struct GroupEntry {
    std::shared_ptr<MemoryGroup> group;
    int taken = 0;
  };
  void on_failure(const std::exception_ptr& cause) override;
  void end_late(const std::unique_lock<std::mutex>& lock) const;

  const EndProcess end_process_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int ended_count_ = 0;
  bool is_failed_ = false;
  std::exception_ptr cause_;
  std::chrono::steady_clock::time_point failed_at_;
  /// The key is the id.
  std::map<uint64_t, GroupEntry> groups_;
};

/// The processes of one host that belong to one job.
struct HostMembers {
  /// Equal for the processes of a job, and for no others of the user.
  std::string key;
  /// This process's number among them, and how many they are.
  int index = 0;
  int count = 1;
  /// Equal in all of them, or they refuse each other.
  std::string build;
};

/// Memory that the processes of a host have in common, mapped at the same addresses in each.
struct HostMemory {
  std::shared_ptr<SharedMemory> segment;
  /// One for each process.
  std::vector<std::shared_ptr<SharedMemory>> heaps;
};

/// Meets the other processes over a socket without a file, and hands the memory round. Processes of
/// other users are not let in, and cannot stop a meeting by taking its name: process 0 draws a part
/// of it, and the others find it in the system's list of sockets. std::runtime_error naming those
/// that did not come in time, and a process of another build; both end it in all processes.
HostMemory meet(const HostMembers& members, size_t segment_bytes,
                std::chrono::milliseconds deadline);

/// 64 random bits as 16 hexadecimal digits.
std::string random_digits();

struct WorldSegment;

/// One process's view of a world whose ranks are processes. Those on one host share a segment for
/// failures, ended ranks and groups, and have mapped each other's heaps.
class ProcessWorld final : public World, public std::enable_shared_from_this<ProcessWorld> {
 public:
  /// Bytes of the segment's address range; pages take memory only once touched.
  static constexpr size_t kSegmentBytes = size_t{64} << 30;

  /// `here`: the ranks of this host, including `rank`. `segment`: zeros when the first of them
  /// joins, with each one's index locked (`meet`). `heap`: the memory that this process shares with
  /// the others.
  ProcessWorld(int rank, int ranks, std::vector<int> here, std::chrono::milliseconds deadline,
               std::shared_ptr<SharedMemory> segment, SharedHeap& heap, EndProcess end_process);

  int rank() const { return rank_; }
  /// The transport of the world communicator, when all ranks are on this host.
  std::shared_ptr<Transport> world_transport();

  bool is_gone(int rank) const override;
  std::string end_in_words(int rank) const override;
  /// Ends this process, because it cannot release its memory.
  void on_stuck_reader(int rank) const override;
  bool shares_memory(std::span<const int> ranks) const override;
  std::shared_ptr<MemoryGroup> group(Members members) override;

 private:
  int local_index(int rank) const override;
  std::byte* cut(size_t bytes);

  const int rank_;
  const std::vector<int> here_;
  const std::shared_ptr<SharedMemory> memory_;
  WorldSegment& segment_;
  SharedHeap& heap_;
  const EndProcess end_process_;
  /// Asks the system whether a process is gone, at intervals; called from any thread.
  mutable std::mutex looking_;
  mutable std::chrono::steady_clock::time_point looked_{};
  mutable std::vector<bool> gone_;
};

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include "src/launch/connection.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <system_error>
#include <utility>

#include "src/comm/mpi/mpi_transport.h"
#include "src/comm/mpi/separate_world.h"
#include "src/comm/nccl/calls.h"
#include "src/comm/tcp/session.h"
#include "src/device/memory.h"
#include "src/launch/run_ranks.h"
#include "weft/error.h"

namespace weft {

std::shared_ptr<ProcessWorld> join_host(Connection& made, const std::string& job, int rank,
                                        int size, std::vector<int> here,
                                        const RunOptions& options) {
  const auto index = std::find(here.begin(), here.end(), rank) - here.begin();
  const HostMembers members{job, static_cast<int>(index), static_cast<int>(here.size()),
                            build_in_words()};
  HostMemory memory = meet(members, ProcessWorld::kSegmentBytes, options.deadline);
  made.heap = std::make_unique<SharedHeap>(memory.heaps[static_cast<size_t>(index)]);
  made.heaps = std::move(memory.heaps);
  auto world = std::make_shared<ProcessWorld>(rank, size, std::move(here), options.deadline,
                                              memory.segment, *made.heap, end_process);
  // Memory cached so far is not visible to the other ranks.
  release_cached_memory();
  SharedHeap::set_of_process(made.heap.get());
  return world;
}

/// Identifies processes that can share memory: same kernel and same namespaces, so that each
/// container counts as a host, and so does each `weft run` of a job on several hosts.
static std::string host_in_words() {
  std::string words;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), words);
  for (const char* name : {"/proc/self/ns/net", "/proc/self/ns/pid"}) {
    std::error_code ignored;
    words += concat(' ', std::filesystem::read_symlink(name, ignored).string());
  }
  if (const char* host = std::getenv("WEFT_HOST_RANK")) words += concat(' ', host);
  return words;
}

/// Keeps the parent's connection reachable in a child, which cannot destroy it: its memory is not
/// mapped there.
[[gnu::used]] static Connection* connection_of_parent = nullptr;

void forget_connections() {
  connection_of_parent = std::exchange(Connection::first, nullptr);
  close_tcp_in_child();
  SharedHeap::lose();
  Heap::forget_kept();
}

/// The text of a process, a line each.
struct ProcessLines {
  explicit ProcessLines(const std::string& text) {
    std::istringstream lines(text);
    for (std::string* line : {&build, &host, &key, &first, &rank}) std::getline(lines, *line);
  }
  std::string build, host;
  /// Random: unique among the processes of all jobs.
  std::string key;
  /// The id of the process's first connection, and its rank there; empty before.
  std::string first, rank;
};

std::string text_of_process() {
  const Connection* first = Connection::first;
  return concat(build_in_words(), '\n', host_in_words(), '\n', random_digits(), '\n',
                first ? concat(first->id, '\n', first->world.rank()) : "");
}

std::vector<int> ranks_in_first(const MpiSession& session) {
  std::vector<int> ranks;
  const std::string id = ProcessLines(session.texts()[0]).first;
  for (const std::string& text : session.texts()) {
    const ProcessLines process(text);
    if (process.first.empty() || process.first != id) return {};
    ranks.push_back(std::stoi(process.rank));
  }
  return ranks;
}

static std::vector<ProcessLines> checked_lines(const std::vector<std::string>& texts) {
  const std::vector<ProcessLines> processes(texts.begin(), texts.end());
  for (size_t rank = 1; rank < processes.size(); ++rank) {
    if (processes[rank].build == processes[0].build) continue;
    fail_call("connect", "rank ", rank,
              " is another build, which may compute other bits: ", processes[rank].build,
              "; rank 0 is ", processes[0].build);
  }
  return processes;
}

/// Returns the host of each rank, numbered from 0 by first occurrence.
static std::vector<int> hosts_of(const std::vector<ProcessLines>& processes) {
  std::map<std::string, int> seen;
  std::vector<int> numbers;
  for (const ProcessLines& process : processes) {
    numbers.push_back(seen.emplace(process.host, static_cast<int>(seen.size())).first->second);
  }
  return numbers;
}

void join_by_mpi(Connection& made, std::unique_ptr<MpiSession> session, const RunOptions& options) {
  const std::vector<ProcessLines> processes = checked_lines(session->texts());
  std::vector<int> hosts = hosts_of(processes);
  const int size = session->size(), rank = session->rank();
  made.id = processes[0].key;
  std::vector<int> here;
  bool may_share = true;
  for (int r = 0; r < size; ++r) {
    if (hosts[static_cast<size_t>(r)] != hosts[static_cast<size_t>(rank)]) continue;
    here.push_back(r);
    // A process has one heap, which others map at its address.
    may_share = may_share && processes[static_cast<size_t>(r)].first.empty();
  }
  const auto ranks_here = static_cast<int>(here.size());
  if (!may_share || ranks_here >= SharedMemory::kMaxRegions) {
    const auto world = std::make_shared<SeparateWorld>(size, options.deadline, ranks_here);
    made.mpi = new_engine(std::move(session), world);
  } else {
    const std::string& key = processes[static_cast<size_t>(here.front())].key;
    const auto world = join_host(made, concat("mpi-", key), rank, size, std::move(here), options);
    if (ranks_here == size) {
      made.world = Communicator(with_nccl(world->world_transport()));
      if (session->is_guest()) return session->end();
      made.session = std::move(session);
      return;
    }
    made.mpi = new_engine(std::move(session), world);
  }
  made.world = Communicator(with_nccl(mpi_world(made.mpi, std::move(hosts))));
}

}  // namespace weft

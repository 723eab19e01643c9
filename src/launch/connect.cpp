// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <map>
#include <numeric>
#include <thread>
#include <utility>

#include "src/comm/flight/record.h"
#include "src/comm/memory/memory_worlds.h"
#include "src/comm/nccl/calls.h"
#include "src/comm/waiter.h"
#include "src/device/memory.h"
#include "src/device/shared_memory.h"
#include "src/kernels/matmul/product.h"
#include "src/launch/run_ranks.h"
#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/end_on_thread.h"
#include "weft/extend/file.h"
#include "weft/ranks.h"
#include "weft/storage.h"

#ifdef WEFT_WITH_MPI
#include "src/comm/mpi/engine.h"
#include "src/comm/mpi/mpi_transport.h"
#endif

namespace weft {

static std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

static int number_in_variable(const char* name) {
  const std::string text = variable(name);
  int number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (text.empty() || error != std::errc() || stop != end || number < 0) {
    fail("connect: the environment variable ", name, " is ", in_quotes(text),
         ", expected a number of at least 0");
  }
  return number;
}

/// How this process was started: alone, or as one rank of several.
struct Launched {
  /// "weft run", "mpirun", "torchrun", "srun"; empty when alone.
  std::string by = {};
  int rank = 0;
  int size = 1;
  /// Within this host; `local_size` is 0 when unknown.
  int local_rank = 0;
  int local_size = 1;
  /// Equal for all processes of a job.
  std::string job = {};
};

static constexpr int kMostRanks = 1 << 20;

/// Reads the variables of these names; `local_size` may be null.
static Launched read(const char* by, const char* rank, const char* size, const char* local_rank,
                     const char* local_size) {
  const Launched launched{by, number_in_variable(rank), number_in_variable(size),
                          number_in_variable(local_rank),
                          local_size ? number_in_variable(local_size) : 0};
  // Memory is taken for each rank before the others are found.
  if (launched.size > kMostRanks) {
    fail("connect: ", size, " is ", launched.size, ", expected at most ", kMostRanks);
  }
  const bool fits = launched.rank < launched.size && launched.local_rank <= launched.rank &&
                    launched.local_size <= launched.size;
  if (!fits) {
    fail("connect: ", rank, " is ", launched.rank, ", ", size, " is ", launched.size, ", ",
         local_rank, " is ", launched.local_rank, " and the ranks of this host are ",
         launched.local_size, ", expected numbers of one job");
  }
  return launched;
}

static bool is_set(const char* name) { return std::getenv(name) != nullptr; }

/// With half a set of variables, each process would become a separate world.
static void check_set(std::initializer_list<const char*> names) {
  const char* present = nullptr;
  const char* absent = nullptr;
  for (const char* name : names) (is_set(name) ? present : absent) = name;
  if (present && absent) {
    fail("connect: the environment variable ", present, " is set and ", absent,
         " is not, expected both");
  }
}

/// Reads the variables that weft run, mpirun (Open MPI), torchrun and srun set, in this order.
/// Throws std::invalid_argument naming a variable that is missing or not a number.
static Launched launched_from_environment() {
  Launched launched;
  check_set({"WEFT_RANK", "WEFT_WORLD_SIZE", "WEFT_LOCAL_RANK", "WEFT_LOCAL_WORLD_SIZE"});
  if (is_set("WEFT_WORLD_SIZE")) {
    launched = read("weft run", "WEFT_RANK", "WEFT_WORLD_SIZE", "WEFT_LOCAL_RANK",
                    "WEFT_LOCAL_WORLD_SIZE");
    launched.job = variable("WEFT_JOB");
  } else if (is_set("OMPI_COMM_WORLD_SIZE")) {
    launched = read("mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
    launched.job = concat(variable("PMIX_NAMESPACE"), '-', variable("OMPI_MCA_ess_base_jobid"));
  } else if (is_set("RANK") && is_set("WORLD_SIZE")) {
    check_set({"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT"});
    launched = read("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE");
    launched.job = concat(variable("TORCHELASTIC_RUN_ID"), '-', variable("MASTER_PORT"), '-',
                          variable("TORCHELASTIC_RESTART_COUNT"));
  } else if (is_set("SLURM_STEP_ID") && is_set("SLURM_STEP_NUM_TASKS")) {
    // Without srun, in a batch script, there is no step.
    launched = read("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr);
    if (variable("SLURM_STEP_NUM_NODES") == "1") launched.local_size = launched.size;
    launched.job = concat(variable("SLURM_JOB_ID"), '.', variable("SLURM_STEP_ID"));
  }
  return launched.size > 1 ? launched : Launched();
}

std::string build_in_words() {
  std::string words = "weft " WEFT_VERSION ", g++ " __VERSION__;
#ifdef __AVX512F__
  words += ", AVX-512";
#elif defined(__AVX2__)
  words += ", AVX2";
#endif
#ifdef WEFT_WITH_ONEDNN
  words += concat(", ", onednn_in_words());
#endif
#ifndef NDEBUG
  words += ", debug";
#endif
  return words;
}

namespace {

/// What makes this process a rank. It lasts as long as the process: tensors may outlive `main`.
struct Connection {
  Communicator world;
  std::unique_ptr<SharedHeap> heap;
  std::vector<std::shared_ptr<SharedMemory>> heaps;
#ifdef WEFT_WITH_MPI
  /// Set when the ranks are on several hosts.
  std::shared_ptr<MpiEngine> mpi;
#endif

  World& shared() const { return *world.transport()->world(); }
};

}  // namespace

static Connection* connection = nullptr;
static std::terminate_handler terminate_before = nullptr;

static void end_rank() {
  if (!connection) return;
  connection->shared().end_for_good(connection->world.rank());
#ifdef WEFT_WITH_MPI
  if (connection->mpi) connection->mpi->end();
#endif
}

/// Keeps the parent's connection reachable in a child, which cannot destroy it: its memory is not
/// mapped there.
[[gnu::used]] static Connection* connection_of_parent = nullptr;

/// A child of this process is not a rank and has none of the shared memory.
static void forget_connection() {
  connection_of_parent = std::exchange(connection, nullptr);
  SharedHeap::lose();
  Heap::forget_kept();
}

/// Tells all ranks that this one threw.
static void tell_exception(const std::exception_ptr& cause) {
  connection->shared().abort_for_exception(connection->world.rank(), cause);
#ifdef WEFT_WITH_MPI
  if (!connection->mpi) return;
  const MpiEngine::Lock lock = connection->mpi->lock();
  connection->mpi->poll();  // notifies the other hosts
#endif
}

/// Reports an uncaught exception to the other ranks.
[[noreturn]] static void end_by_exception() {
  const std::exception_ptr cause = std::current_exception();
  if (cause && connection) {
    tell_exception(cause);
    write_flight_record(text_of(cause));
  }
  terminate_before();
  std::abort();
}

/// A rank that fails because of another rank lets that one exit first: launchers report the process
/// that exited first.
static void let_the_cause_end_first() {
  const WorldFailure failure = connection->shared().failure();
  const int cause = failure.rank >= 0 ? failure.rank : failure.found_by;
  if (cause < 0 || cause == connection->world.rank() || failure.was_late) return;
  wait_until(0, std::chrono::milliseconds(500),
             [&] { return connection->shared().is_gone(cause); });
  // Its files are closed; the launcher notices the exit a moment later.
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

/// Makes the processes of this host see each other's memory; `here`: their ranks.
static std::shared_ptr<ProcessWorld> join_host(Connection& made, const std::string& job,
                                               const Launched& launched, std::vector<int> here,
                                               const RunOptions& options) {
  const auto index = std::find(here.begin(), here.end(), launched.rank) - here.begin();
  const HostMembers members{job, static_cast<int>(index), static_cast<int>(here.size()),
                            build_in_words()};
  HostMemory memory = meet(members, ProcessWorld::kSegmentBytes, options.deadline);
  made.heap = std::make_unique<SharedHeap>(memory.heaps[static_cast<size_t>(index)]);
  made.heaps = std::move(memory.heaps);
  auto world =
      std::make_shared<ProcessWorld>(launched.rank, launched.size, std::move(here),
                                     options.deadline, memory.segment, *made.heap, end_process);
  // Memory cached so far is not visible to the other ranks.
  release_cached_memory();
  SharedHeap::set_of_process(made.heap.get());
  return world;
}

#ifdef WEFT_WITH_MPI
/// Identifies processes that can share memory: same kernel and same namespaces, so that each
/// container counts as a host.
static std::string host_in_words() {
  std::string words;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), words);
  for (const char* name : {"/proc/self/ns/net", "/proc/self/ns/pid"}) {
    std::error_code ignored;
    words += concat(' ', std::filesystem::read_symlink(name, ignored).string());
  }
  return words;
}

/// Each process's text: its build, and in a second line its host.
static void check_builds(const std::vector<std::string>& texts) {
  const auto build_of = [](const std::string& text) { return text.substr(0, text.find('\n')); };
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    if (build_of(texts[rank]) == build_of(texts[0])) continue;
    fail_call("connect", "rank ", rank,
              " is another build, which may compute other bits: ", build_of(texts[rank]),
              "; rank 0 is ", build_of(texts[0]));
  }
}

/// Returns the host of each rank, numbered from 0 by first occurrence.
static std::vector<int> numbered(const std::vector<std::string>& hosts) {
  std::map<std::string, int> seen;
  std::vector<int> numbers;
  for (const std::string& host : hosts) {
    numbers.push_back(seen.emplace(host, static_cast<int>(seen.size())).first->second);
  }
  return numbers;
}

/// Called by all processes of the job. std::runtime_error when MPI's ranks differ from the
/// launcher's, or when a process runs another build.
static void connect_by_mpi(Connection& made, const Launched& launched, const RunOptions& options) {
  std::vector<int> hosts;
  const auto make_world = [&](int rank, const std::vector<std::string>& processes) {
    const auto size = static_cast<int>(processes.size());
    if (size != launched.size || rank != launched.rank) {
      fail_call("connect", launched.by, " says rank ", launched.rank, " of ", launched.size,
                ", but MPI says rank ", rank, " of ", size,
                "; ranks on several hosts are started by mpirun, or by srun --mpi=pmix");
    }
    check_builds(processes);
    hosts = numbered(processes);
    std::vector<int> here;
    for (int r = 0; r < size; ++r) {
      if (hosts[static_cast<size_t>(r)] == hosts[static_cast<size_t>(rank)]) here.push_back(r);
    }
    // Containers that share a network are separate hosts, and meet under separate names.
    return join_host(made, concat(launched.job, '.', here.front()), launched, here, options);
  };
  made.mpi = std::make_shared<MpiEngine>(concat(build_in_words(), '\n', host_in_words()),
                                         options.deadline, end_process, make_world);
  made.world = Communicator(with_nccl(mpi_world(made.mpi, hosts)));
}
#endif

static std::unique_ptr<Connection> new_connection(const RunOptions& options) {
  auto made = std::make_unique<Connection>();
  const Launched launched = launched_from_environment();
  if (launched.size == 1) {
    const auto world = std::make_shared<ThreadsWorld>(1, options.deadline, end_process);
    made->world = Communicator(world->transports()[0]);
  } else if (launched.local_size == launched.size) {
    std::vector<int> ranks(static_cast<size_t>(launched.size));
    std::iota(ranks.begin(), ranks.end(), 0);
    const auto world = join_host(*made, launched.job, launched, std::move(ranks), options);
    made->world = Communicator(with_nccl(world->world_transport()));
  } else {
#ifdef WEFT_WITH_MPI
    connect_by_mpi(*made, launched, options);
#else
    fail_call("connect", "the ", launched.size, " ranks of ", launched.by,
              " are on several hosts, and this build has no MPI; build with Open MPI, or start all "
              "ranks on one host");
#endif
  }
  return made;
}

int launched_ranks() {
  return connection ? connection->world.size() : launched_from_environment().size;
}

std::string launched_by() { return launched_from_environment().by; }

LocalRank launched_local_rank() {
  const Launched launched = launched_from_environment();
  return {launched.local_rank, launched.local_size};
}

/// Threads of a rank that shares this host with the others of its job.
static int threads_here(const RunOptions& options) {
  const int ranks = std::max(1, static_cast<int>(connection->heaps.size()));
  return threads_of_rank(ranks, options);
}

Communicator connect(const RunOptions& options) {
  if (connection) {
    // A rank that ended the previous run continues with a new one.
    connection->shared().begin_run();
    return connection->world;
  }
  check_options("connect", options);
  open_standard_descriptors();
  connection = new_connection(options).release();
  static_cast<void>(RankThread::Call(*connection->world.transport()->rank_thread(), "connect"));
  become_rank(Context::current(), threads_here(options), options);
  Context::current().flight = new_flight_record(connection->world.rank(), connection->world.size());
  terminate_before = std::set_terminate(end_by_exception);
  std::atexit(end_rank);
  pthread_atfork(nullptr, nullptr, forget_connection);
  // Ranks that mpirun started would go on without it.
  if (launched_by() == "mpirun") prctl(PR_SET_PDEATHSIG, SIGTERM);
  return connection->world;
}

static void run_connected(const std::function<void(Communicator)>& body,
                          const RunOptions& options) {
  const bool is_first = !connection;
  const Communicator world = connect(options);
  if (!is_first) become_rank(Context::current(), threads_here(options), options);
  try {
    body(world);
    end_departed();
  } catch (...) {
    const std::exception_ptr cause = std::current_exception();
    tell_exception(cause);
    write_flight_record(text_of(cause));
    let_the_cause_end_first();
    throw;
  }
  connection->shared().end(connection->world.rank());
}

void run_world(int ranks, const std::function<void(Communicator)>& body,
               const RunOptions& options) {
  const int launched = launched_ranks();
  if (launched == 1) return run_ranks(ranks, body, options);
  if (ranks > 1 && ranks != launched) {
    fail("run_world: number of ranks is ", ranks, ", expected ", launched,
         ", that of the job of this process");
  }
  run_connected(body, options);
}

}  // namespace weft

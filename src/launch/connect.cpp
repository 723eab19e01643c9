// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/comm/flight/record.h"
#include "src/comm/memory/memory_worlds.h"
#include "src/comm/nccl/calls.h"
#include "src/comm/tcp/session.h"
#include "src/comm/waiter.h"
#include "src/device/shared_memory.h"
#include "src/kernels/matmul/product.h"
#include "src/launch/connection.h"
#include "src/launch/launched.h"
#include "src/launch/run_ranks.h"
#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/end_on_thread.h"
#include "weft/extend/file.h"
#include "weft/ranks.h"
#include "weft/storage.h"

namespace weft {

std::string build_in_words() {
#ifdef __clang__
  std::string words = "weft " WEFT_VERSION ", clang " __clang_version__;
#else
  std::string words = "weft " WEFT_VERSION ", g++ " __VERSION__;
#endif
#ifdef __aarch64__
  words += ", aarch64";
#endif
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

static Connection* connection = nullptr;
static std::terminate_handler terminate_before = nullptr;

static void end_rank() {
  if (!connection) return;
  connection->shared().end_for_good(connection->world.rank());
  if (connection->mpi) connection->mpi->end();
  // Where ranks failed, MPI_Finalize may wait for one that never comes.
  if (connection->session && !connection->shared().is_aborted()) connection->session->end();
}

/// A child of this process is not a rank.
static void forget_connection() {
  connection = nullptr;
  forget_connections();
}

/// Tells all ranks that this one threw.
static void tell_exception(const std::exception_ptr& cause) {
  connection->shared().abort_for_exception(connection->world.rank(), cause);
  if (!connection->mpi) return;
  const MpiEngine::Lock lock = connection->mpi->lock();
  connection->mpi->poll();  // notifies the other hosts
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

/// Called by all processes of the job. std::runtime_error when MPI's ranks differ from the
/// launcher's, or when a process runs another build.
static void connect_by_mpi(Connection& made, const Launched& launched, const RunOptions& options) {
  auto session = MpiSession::of_job(text_of_process(), options.deadline, end_process);
  if (session->size() != launched.size || session->rank() != launched.rank) {
    fail_call("connect", launched.by, " says rank ", launched.rank, " of ", launched.size,
              ", but MPI says rank ", session->rank(), " of ", session->size(), " (",
              session->library().in_words(),
              "); ranks on several hosts are started by mpirun, mpiexec, or srun --mpi=pmix");
  }
  join_by_mpi(made, std::move(session), options);
}

/// Called by all processes of the job, which meet at its rendezvous.
static void connect_by_tcp(Connection& made, const Launched& launched, const RunOptions& options) {
  const size_t slash = std::min(launched.rendezvous.find('/'), launched.rendezvous.size());
  const std::string at = launched.rendezvous.substr(0, slash);
  TcpMember member{.rendezvous = endpoint_of(at),
                   .job = launched.rendezvous.substr(slash),
                   .rank = launched.rank,
                   .size = launched.size,
                   .text = text_of_process(),
                   .timeout = launched.tcp_timeout};
  // Each weft run names its processes separately; other launchers give all hosts one name.
  if (launched.by != "weft run") member.job += concat('/', launched.job);
  if (launched.local_size > 0 && launched.size % launched.local_size == 0) {
    member.local_size = launched.local_size;
  }
  join_by_mpi(made, tcp_session(member, options.deadline), options);
}

static std::unique_ptr<Connection> new_connection(const RunOptions& options) {
  auto made = std::make_unique<Connection>();
  const Launched launched = launched_from_environment();
  if (launched.size == 1) {
    const auto world = std::make_shared<ThreadsWorld>(1, options.deadline, end_process);
    made->world = Communicator(world->transports()[0]);
  } else if (launched.local_size == launched.size && !launched.job.empty()) {
    std::vector<int> ranks(static_cast<size_t>(launched.size));
    std::iota(ranks.begin(), ranks.end(), 0);
    const auto world =
        join_host(*made, launched.job, launched.rank, launched.size, std::move(ranks), options);
    made->id = concat("job ", launched.job);
    made->world = Communicator(with_nccl(world->world_transport()));
  } else if (!launched.rendezvous.empty()) {
    connect_by_tcp(*made, launched, options);
  } else {
    connect_by_mpi(*made, launched, options);
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
  const bool is_guest = MpiLibrary::is_initialized_by_program();
  if (is_guest && Connection::first) return connect_all_of_mpi(options);
  open_standard_descriptors();
  connection = new_connection(options).release();
  if (connection->world.size() > 1) Connection::first = connection;
  static_cast<void>(RankThread::Call(*connection->world.transport()->rank_thread(), "connect"));
  become_rank(Context::current(), is_guest ? options.threads_per_rank : threads_here(options),
              options);
  Context::current().flight =
      new_flight_record(connection->world.rank(), connection->world.size(), !is_guest);
  terminate_before = std::set_terminate(end_by_exception);
  std::atexit(end_rank);
  pthread_atfork(nullptr, nullptr, forget_connection);
  // Ranks that mpirun started would go on without it.
  if (!is_guest && launched_by() == "mpirun") prctl(PR_SET_PDEATHSIG, SIGTERM);
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
  // A thread that was connected before goes on in this world.
  if (is_first) connection->shared().end(connection->world.rank());
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

// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "src/base/parallel.h"
#include "src/comm/flight/record.h"
#include "src/comm/memory/memory_worlds.h"
#include "src/device/context_scope.h"
#include "src/launch/run_ranks.h"
#include "weft/communicator.h"
#include "weft/extend/end_on_thread.h"
#include "weft/extend/file.h"
#include "weft/threads.h"

namespace weft {

/// Keeps now + deadline representable.
static constexpr std::chrono::milliseconds kLongestDeadline = std::chrono::hours(24 * 3653);

void check_options(const char* what, const RunOptions& options) {
  if (options.deadline.count() <= 0) {
    fail(what, ": deadline must be at least 1 ms, got ", options.deadline.count());
  }
  if (options.deadline > kLongestDeadline) {
    fail(what, ": deadline is ", options.deadline.count(), " ms, expected at most ten years, ",
         kLongestDeadline.count());
  }
  if (options.threads_per_rank < 0 || options.threads_per_rank > kMostThreads) {
    fail(what, ": number of threads a rank is ", options.threads_per_rank, ", expected 0 to ",
         kMostThreads, "; 0 shares the cores");
  }
}

int threads_of_rank(int ranks, const RunOptions& options) {
  if (options.threads_per_rank > 0) return options.threads_per_rank;
  return std::max(1, available_cores() / ranks);
}

void become_rank(Context& context, int wanted_threads, const RunOptions& options) {
  if (wanted_threads > 0) {
    const int threads = usable_by_caller(wanted_threads);
    omp_set_num_threads(threads);
    context.threads = threads;
  }
  context.random = {options.seed, 0};
  context.checks_equality = options.checks_equality;
}

void end_process(const std::string& why) noexcept {
  std::fprintf(stderr, "weft: %s\n", why.c_str());
  std::fflush(stderr);
  std::_Exit(1);
}

/// The life of one rank's thread.
static void run_rank(ThreadsWorld& world, std::shared_ptr<Transport> transport, int threads,
                     const RunOptions& options, const std::function<void(Communicator)>& body) {
  const int rank = transport->rank();
  {
    Context context;
    const ContextScope scope(context);
    try {
      become_rank(context, threads, options);
      context.flight = new_flight_record(rank, world.ranks());
      static_cast<void>(RankThread::Call(*transport->rank_thread(), "run_ranks"));
      body(Communicator(std::move(transport)));
      end_departed();
    } catch (...) {
      world.body_threw(rank, std::current_exception());
      write_flight_record(text_of(std::current_exception()));
    }
  }
  world.end(rank);
}

void run_ranks(int ranks, const std::function<void(Communicator)>& body,
               const RunOptions& options) {
  if (ranks < 1 || ranks > kMostLocalRanks) {
    fail("run_ranks: the number of ranks is ", ranks, ", expected 1 to ", kMostLocalRanks);
  }
  check_options("run_ranks", options);
  open_standard_descriptors();
  const auto world = std::make_shared<ThreadsWorld>(ranks, options.deadline, end_process);
  const int threads_per_rank = threads_of_rank(ranks, options);
  std::vector<std::thread> threads;
  for (auto& transport : world->transports()) {
    const int rank = transport->rank();
    try {
      threads.emplace_back(run_rank, std::ref(*world), std::move(transport), threads_per_rank,
                           std::cref(options), std::cref(body));
    } catch (...) {  // the system has no thread left
      world->body_threw(rank, std::current_exception());
      world->end(rank);
    }
  }
  world->await_all();
  for (std::thread& thread : threads) thread.join();
  world->forget_groups();
  world->rethrow();
}

}  // namespace weft

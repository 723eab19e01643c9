// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <fstream>
#include <mutex>
#include <set>
#include <thread>

#include "src/comm/world.h"
#include "tests/support/processes.h"
#include "tests/support/scratch.h"
#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/ranks.h"

#ifdef WEFT_WITH_OPENMP
#include <omp.h>
#endif

namespace weft {

TEST(RunRanks, EachRankHasAThreadAndAContextOfItsOwn) {
  std::mutex mutex;
  std::set<Context*> contexts;
  std::set<std::thread::id> threads;
  run_ranks(
      4,
      [&](Communicator world) {
        EXPECT_EQ(world.size(), 4);
        EXPECT_EQ(world.name(), "world");
        Context& context = Context::current();
        EXPECT_TRUE(context.grad_enabled);
        EXPECT_EQ(context.random, (RandomState{11, 0}));
        EXPECT_EQ(context.threads, 1);
        manual_seed(static_cast<uint64_t>(world.rank()));
        context.random.stream = 3;
        world.barrier();
        EXPECT_EQ(Context::current().random, (RandomState{static_cast<uint64_t>(world.rank()), 3}));
        const std::lock_guard lock(mutex);
        contexts.insert(&context);
        threads.insert(std::this_thread::get_id());
      },
      {.threads_per_rank = 1, .seed = 11});
  EXPECT_EQ(contexts.size(), 4u);
  EXPECT_EQ(threads.size(), 4u);
}

TEST(RunRanks, ShareOneSwitchForDeterminism) {
  EXPECT_FALSE(uses_deterministic_algorithms());
  use_deterministic_algorithms(true);
  run_ranks(2, [](Communicator) { EXPECT_TRUE(uses_deterministic_algorithms()); });
  use_deterministic_algorithms(false);
  EXPECT_FALSE(uses_deterministic_algorithms());
}

TEST(RunRanks, CoresAreSharedUnlessSaidOtherwise) {
  const int cores = available_cores();
  EXPECT_GE(cores, 1);
  run_ranks(1, [&](Communicator) { EXPECT_EQ(Context::current().threads, cores); });
  run_ranks(cores + 1, [&](Communicator) { EXPECT_EQ(Context::current().threads, 1); });
  run_ranks(2,
            [&](Communicator) {
              EXPECT_EQ(Context::current().threads, 3);
#ifdef WEFT_WITH_OPENMP
              EXPECT_EQ(omp_get_max_threads(), 3);
#endif
            },
            {.threads_per_rank = 3});
}

TEST(RunRanks, AThreadWithoutOneHasADefaultContext) {
  Context& context = Context::current();
  EXPECT_EQ(&context, &Context::current());
  EXPECT_TRUE(context.grad_enabled);
  std::thread([&] { EXPECT_NE(&Context::current(), &context); }).join();
  {
    const NoGrad none;
    const TrafficScope scope(Traffic::forbid);
    EXPECT_FALSE(Context::current().grad_enabled);
    EXPECT_EQ(Context::current().traffic, Traffic::forbid);
    run_ranks(1, [&](Communicator) { EXPECT_TRUE(Context::current().grad_enabled); });
  }
  EXPECT_TRUE(context.grad_enabled);
  EXPECT_EQ(context.traffic, Traffic::allow);
}

TEST(RunRanks, Nests) {
  std::atomic<int> inner_ranks{0};
  run_ranks(2, [&](Communicator world) {
    run_ranks(3, [&](Communicator inner) {
      inner.barrier();
      ++inner_ranks;
    });
    world.barrier();
  });
  EXPECT_EQ(inner_ranks, 6);
}

TEST(RunRanks, AnInnerFailureReachesTheOuterCaller) {
  const std::string message = error_of<std::runtime_error>([] {
    run_ranks(2, [](Communicator world) {
      if (world.rank() == 1) {
        run_ranks(2, [](Communicator inner) {
          if (inner.rank() == 0) throw std::runtime_error("deep");
          inner.barrier();
        });
      }
      world.barrier();
    });
  });
  EXPECT_EQ(message, "deep");
}

TEST(RunRanks, CanRunAgainAfterAFailure) {
  for (int round = 0; round < 3; ++round) {
    EXPECT_THROW(run_ranks(2,
                           [](Communicator world) {
                             if (world.rank() == 0) throw std::runtime_error("again");
                             world.barrier();
                           }),
                 std::runtime_error);
    run_ranks(2, [](Communicator world) { world.barrier(); });
  }
}

/// An exception whose text fits no memory that is left.
class Endless : public std::exception {
 public:
  const char* what() const noexcept override {
    static constexpr size_t kBytes = size_t{64} << 20;
    static char* const text = [] {
      void* memory =
          ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      std::memset(memory, 'x', kBytes - 1);
      size_t pages = 0;
      std::ifstream("/proc/self/statm") >> pages;
      const rlim_t now = pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE)) + (rlim_t{16} << 20);
      const rlimit most{now, now};
      ::setrlimit(RLIMIT_AS, &most);
      return static_cast<char*>(memory);
    }();
    return text;
  }
};

TEST(RunRanks, AnErrorWithoutMemoryForItsTextReachesTheCaller) {
  if (kSanitized) GTEST_SKIP();
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      run_ranks(2, [](Communicator world) {
        if (world.rank() == 1) throw Endless();
        EXPECT_TRUE(error_of<CommError>([&] { world.barrier(); }).ends_with("out of memory"));
      });
    } catch (const Endless&) {
      ::_exit(testing::Test::HasFailure() ? 1 : 0);
    } catch (...) {
      ::_exit(2);
    }
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(RunRanks, OptionsAreChecked) {
  const auto nothing = [](Communicator) {};
  EXPECT_EQ(error_of([&] { run_ranks(0, nothing); }),
            "run_ranks: the number of ranks is 0, expected 1 to 1024");
  EXPECT_EQ(error_of([&] { run_ranks(1'000'000'000, nothing); }),
            "run_ranks: the number of ranks is 1000000000, expected 1 to 1024");
  EXPECT_EQ(error_of([&] { run_ranks(1, nothing, {.deadline = std::chrono::milliseconds(0)}); }),
            "run_ranks: deadline must be at least 1 ms, got 0");
  EXPECT_EQ(
      error_of([&] { run_ranks(1, nothing, {.deadline = std::chrono::milliseconds::max()}); }),
      "run_ranks: deadline is 9223372036854775807 ms, expected at most ten years, 315619200000");
  EXPECT_EQ(error_of([&] { run_ranks(1, nothing, {.threads_per_rank = -1}); }),
            "run_ranks: number of threads a rank is -1, expected 0 to 1024; 0 shares the cores");
  EXPECT_EQ(
      error_of([&] { run_ranks(1, nothing, {.threads_per_rank = 1'000'000'000}); }),
      "run_ranks: number of threads a rank is 1000000000, expected 0 to 1024; 0 shares the cores");
}

TEST(RunRanks, ARankThatNeverEndsEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_ranks(3,
                        [](Communicator world) {
                          if (world.rank() == 1) {
                            for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
                          }
                          world.barrier();
                        },
                        {.deadline = std::chrono::milliseconds(300)}),
              testing::ExitedWithCode(1),
              "weft: ending the process, because rank 1 neither ended nor noticed that world: "
              "collective 1: barrier\\(\\): rank 1 did not call it within 300 ms");
}

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "tests/comm/backends.h"
#include "tests/support/scratch.h"
#include "weft/error.h"
#include "weft/ranks.h"

namespace weft {

static constexpr const char* kTwoThreads =
    ": two threads of this rank make calls at once, expected one thread at a time for the "
    "communicators and meshes of a rank; make these calls on one thread";

class RankThread : public OnRanks {
 protected:
  /// Cases that start two threads as ranks by themselves run once.
  bool is_first_case() const {
    return ranks() == 2 && std::string_view(std::get<0>(GetParam()).name) == "threads";
  }
};
INSTANTIATE_TEST_SUITE_P(All, RankThread, on_all_ranks(), case_name);

static void on_other_thread(const std::function<void()>& body) { std::thread(body).join(); }

/// The text of what `call` throws on another thread.
static std::string refused(const std::function<void()>& call) {
  std::string text;
  on_other_thread([&] { text = error_of<std::invalid_argument>(call); });
  return text;
}

TEST_P(RankThread, OthersAreRefusedWhileACallIsUnderWay) {
  run([&](Communicator world) {
    if (world.size() == 1) return;
    for (int64_t round = 0; round < 20; ++round) {
      int64_t value = world.rank() + round, count = 1, other = 7;
      const Piece piece{.send = &value, .recv = &value, .dtype = i64, .counts = {&count, 1}};
      const Piece second{.send = &other, .recv = &other, .dtype = i64, .counts = {&count, 1}};
      Work work = world.all_reduce({&piece, 1}, ReduceOp::sum);
      const CommunicatorTraffic before = world.traffic();
      EXPECT_EQ(refused([&] {
                  world.all_reduce({&second, 1}, ReduceOp::sum).wait();
                }),
                std::string("all_reduce") + kTwoThreads);
      EXPECT_EQ(refused([&] { world.barrier(); }), std::string("barrier") + kTwoThreads);
      EXPECT_EQ(refused([&] {
                  (void)world.all_gather_numbers({&other, 1});
                }),
                std::string("all_gather") + kTwoThreads);
      EXPECT_EQ(refused([&] { (void)world.split(0, 0, "part"); }),
                std::string("split") + kTwoThreads);
      EXPECT_EQ(refused([&] { (void)world.send(&other, 1, i64, 1 - world.rank() % 2); }),
                std::string("send") + kTwoThreads);
      EXPECT_EQ(refused([&] { work.wait(); }), std::string("wait") + kTwoThreads);
      EXPECT_EQ(refused([&] { work.test(); }), std::string("test") + kTwoThreads);
      EXPECT_EQ(world.traffic().collectives, before.collectives);
      EXPECT_EQ(other, 7);
      work.wait();
      EXPECT_EQ(value, world.size() * (world.size() - 1) / 2 + round * world.size());
    }
  });
}

TEST_P(RankThread, OthersAreRefusedDuringABlockingCall) {
  run([&](Communicator world) {
    if (world.size() == 1) return;
    std::string text;
    std::thread other;
    if (world.rank() == 0) {
      other = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        text = error_of<std::invalid_argument>([&] { world.barrier(); });
      });
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    EXPECT_EQ(world.all_reduce_number(world.rank(), ReduceOp::sum),
              world.size() * (world.size() - 1) / 2);
    if (!other.joinable()) return;
    other.join();
    EXPECT_EQ(text, std::string("barrier") + kTwoThreads);
  });
}

TEST_P(RankThread, MoveBetweenCalls) {
  run([&](Communicator world) {
    for (int round = 0; round < 50; ++round) {
      EXPECT_EQ(world.all_reduce_number(round, ReduceOp::max), round);
      on_other_thread([&] {
        EXPECT_EQ(world.all_reduce_number(1, ReduceOp::sum), world.size());
        world.barrier();
      });
    }
  });
}

TEST_P(RankThread, TwoBesideTheOwnOneAreRefusedUntilThatOneCalls) {
  run([&](Communicator world) {
    if (world.size() == 1) return;
    world.barrier();  // makes this thread the rank's own
    on_other_thread([&] {
      int64_t value = 1, count = 1;
      const Piece piece{.send = &value, .recv = &value, .dtype = i64, .counts = {&count, 1}};
      Work work = world.all_reduce({&piece, 1}, ReduceOp::sum);
      EXPECT_EQ(refused([&] { world.barrier(); }), std::string("barrier") + kTwoThreads);
      EXPECT_EQ(error_of<std::invalid_argument>([&] { world.barrier(); }),
                std::string("barrier") + kTwoThreads);
    });
    world.barrier();
    on_other_thread([&] { world.barrier(); });
  });
}

TEST_P(RankThread, RanksCompareWhetherTheyMoved) {
  if (!is_first_case()) return;
  EXPECT_EQ(error_of<CommError>([] {
              run_ranks(2, [](const Communicator& world) {
                world.barrier();
                const auto call = [&] { (void)world.all_reduce_number(1, ReduceOp::sum); };
                if (world.rank() == 0) return call();
                std::exception_ptr thrown;
                on_other_thread([&] {
                  try {
                    call();
                  } catch (...) {
                    thrown = std::current_exception();
                  }
                });
                std::rethrow_exception(thrown);
              });
            }),
            "world: collective 2: rank 0 called all_reduce(sum, i64, [1]) on its own thread but "
            "rank 1 called it on another thread, expected calls on the same thread of all ranks");
}

/// Makes 300 sums, the first of which counts `made`.
static void make_sums(const Communicator& world, int64_t value, std::atomic<int>& made,
                      std::atomic<int>& wrong) {
  for (int i = 0; i < 300; ++i) {
    try {
      if (world.all_reduce_number(value, ReduceOp::sum) != value * world.size()) ++wrong;
    } catch (const std::exception&) {
    }
    if (i == 0) ++made;
  }
}

TEST_P(RankThread, ThreadsWithoutOrderNeverMixTheirValues) {
  if (!is_first_case()) return;
  for (const bool uses_own : {true, false}) {
    std::atomic<int> wrong = 0, made = 0;
    const auto body = [&](const Communicator& world) {
      world.barrier();
      std::thread first;
      if (!uses_own) {
        first = std::thread([&] { make_sums(world, 1, made, wrong); });
        while (made < 2) std::this_thread::yield();
      }
      std::thread second([&] { make_sums(world, 1000, made, wrong); });
      if (uses_own) make_sums(world, 1, made, wrong);
      if (first.joinable()) first.join();
      second.join();
    };
    try {
      run_ranks(2, body, {.deadline = std::chrono::milliseconds(300)});
    } catch (const CommError&) {
    }
    EXPECT_EQ(wrong, 0);
  }
}

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
// Runs under mpirun with two processes.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/comm/mpi_backend.h"

namespace weft {

using Clock = std::chrono::steady_clock;

static double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

/// Rank 1 does other work for a long time after each start; pending calls end meanwhile.
TEST(MpiProgress, NeedsNoCaller) {
  run_on_mpi(2, [](const Communicator& world) {
    const int64_t count = int64_t{8} << 20;
    std::vector<float> sent(static_cast<size_t>(count), 1.0f);
    std::vector<float> got(sent.size());
    const Piece piece{.send = sent.data(), .recv = got.data(), .counts = {&count, 1}};
    double least = 1e9;
    for (int round = 0; round < 3; ++round) {
      world.barrier();
      Work work = world.all_reduce({&piece, 1}, ReduceOp::sum);
      if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(800));
      const auto begin = Clock::now();
      work.wait();
      least = std::min(least, milliseconds_since(begin));
    }
    EXPECT_EQ(got.front() + got.back(), 4);
    // Rank 0 does not wait for rank 1's wait, nor rank 1 for what ended while it slept; on a busy
    // machine this does not hold in every round.
    EXPECT_LT(least, 600);
  });
}

/// Rank 0 sends and does not poll again; rank 1 still receives everything.
TEST(MpiProgress, GoesOnBehindAnotherWait) {
  run_on_mpi(2, [](const Communicator& world) {
    const std::vector<int> both{0, 1};
    const Communicator other = world.subgroup(both, "other");
    const int64_t count = int64_t{4} << 20;
    std::vector<float> first(static_cast<size_t>(count), 1.0f);
    std::vector<float> second(first.size(), 1.0f);
    const Piece one{.send = first.data(), .recv = first.data(), .counts = {&count, 1}};
    const Piece two{.send = second.data(), .recv = second.data(), .counts = {&count, 1}};
    const bool is_first = world.rank() == 0;
    // Started in different orders, waited for in different orders.
    Work a = is_first ? world.all_reduce({&one, 1}, ReduceOp::sum)
                      : other.all_reduce({&two, 1}, ReduceOp::sum);
    Work b = is_first ? other.all_reduce({&two, 1}, ReduceOp::sum)
                      : world.all_reduce({&one, 1}, ReduceOp::sum);
    a.wait();
    b.wait();
    EXPECT_EQ(first.back() + second.front(), 4);
  });
}

TEST(MpiProgress, BarriersCarryNothing) {
  run_on_mpi(2, [](const Communicator& world) {
    for (int round = 0; round < 200; ++round) world.barrier();
    EXPECT_EQ(world.traffic().collectives, 200);
    EXPECT_EQ(world.traffic().bytes, 0);
  });
}

}  // namespace weft

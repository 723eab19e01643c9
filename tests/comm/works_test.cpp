// SPDX-License-Identifier: Apache-2.0
#include <sched.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <thread>

#include "tests/comm/backends.h"

namespace weft {

class Works : public OnRanks {};
INSTANTIATE_TEST_SUITE_P(All, Works, on_all_ranks(), case_name);

/// A sum of one number per rank, in progress.
struct SumUnderWay {
  int64_t value;
  int64_t one = 1;
  Work work = {};
};

static void start_sum(const Communicator& group, SumUnderWay& sum) {
  const Piece piece{.send = &sum.value, .recv = &sum.value, .dtype = i64, .counts = {&sum.one, 1}};
  sum.work = group.all_reduce({&piece, 1}, ReduceOp::sum);
}

TEST_P(Works, AreWaitedInAnyOrder) {
  run([&](Communicator world) {
    for (unsigned seed = 0; seed < 20; ++seed) {
      std::vector<SumUnderWay> sums(20);
      for (size_t i = 0; i < sums.size(); ++i) {
        sums[i].value = static_cast<int64_t>(i);
        start_sum(world, sums[i]);
      }
      std::vector<size_t> order(sums.size());
      std::iota(order.begin(), order.end(), size_t{0});
      std::shuffle(order.begin(), order.end(),
                   std::mt19937(seed * 100 + static_cast<unsigned>(world.rank())));
      for (const size_t i : order) sums[i].work.wait();
      for (size_t i = 0; i < sums.size(); ++i) {
        ASSERT_EQ(sums[i].value, static_cast<int64_t>(i) * world.size());
      }
    }
  });
}

TEST_P(Works, MoreThanAGroupHasRoomFor) {
  run([&](Communicator world) {
    std::vector<SumUnderWay> sums(150);
    for (auto& sum : sums) {
      sum.value = 1;
      start_sum(world, sum);
    }
    for (auto& sum : sums) sum.work.wait();
    for (const auto& sum : sums) ASSERT_EQ(sum.value, world.size());
  });
}

/// A gather of one number per rank, in progress.
struct GatherUnderWay {
  int64_t own = 0;
  std::vector<int64_t> counts, all;
  Work work = {};
};

static void start_gather(const Communicator& group, GatherUnderWay& gather) {
  const auto ranks = static_cast<size_t>(group.size());
  gather.counts.assign(ranks, 1);
  gather.all.assign(ranks, -1);
  const Piece piece{
      .send = &gather.own, .recv = gather.all.data(), .dtype = i64, .counts = gather.counts};
  gather.work = group.all_gather({&piece, 1});
}

/// Makes ranks that start during a scope share a core.
class OnOneCore {
 public:
  OnOneCore() {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  ~OnOneCore() { sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_;
};

TEST_P(Works, WhoReadsLateGetsWhatWasShown) {
  const OnOneCore narrow;
  run([&](Communicator world) {
    // The last rank starts many works and waits for none; the others proceed as far as they can.
    const bool is_late = world.rank() == world.size() - 1;
    // The maximum that a group has in progress; the other ranks start one more.
    constexpr size_t together = 32;
    int64_t number = 0;
    for (int round = 0; round < 5; ++round) {
      std::vector<GatherUnderWay> gathers(together);
      for (GatherUnderWay& gather : gathers) {
        gather.own = 100 * ++number + world.rank();
        start_gather(world, gather);
        if (!is_late) gather.work.wait();
      }
      if (is_late) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      for (size_t i = 0; i < together; ++i) {
        gathers[i].work.wait();
        const int64_t call = number - static_cast<int64_t>(together - 1 - i);
        for (int r = 0; r < world.size(); ++r) {
          ASSERT_EQ(gathers[i].all[static_cast<size_t>(r)], 100 * call + r);
        }
      }
    }
  });
}

TEST_P(Works, TestMakesProgress) {
  run([&](Communicator world) {
    SumUnderWay sum{.value = world.rank()};
    start_sum(world, sum);
    while (!sum.work.test()) std::this_thread::yield();
    EXPECT_TRUE(sum.work.test());
    sum.work.wait();
    EXPECT_EQ(sum.value, world.size() * (world.size() - 1) / 2);
  });
}

TEST_P(Works, TheDestructorAndAssignmentWait) {
  run([&](Communicator world) {
    SumUnderWay sum{.value = 1};
    start_sum(world, sum);
    sum.work = Work();
    EXPECT_EQ(sum.value, world.size());
    {
      SumUnderWay dropped{.value = 2};
      start_sum(world, dropped);
    }
    world.barrier();
  });
}

TEST_P(Works, OutliveTheirCommunicator) {
  run([&](Communicator world) {
    std::vector<int> all(static_cast<size_t>(world.size()));
    std::iota(all.begin(), all.end(), 0);
    const int64_t count = 5000;
    std::vector<float> values(static_cast<size_t>(count), 1);
    const Piece piece{.send = values.data(), .recv = values.data(), .counts = {&count, 1}};
    Work work = world.subgroup(all, "short").all_reduce({&piece, 1}, ReduceOp::sum);
    work.wait();
    EXPECT_EQ(values.back(), static_cast<float>(world.size()));
  });
}

TEST_P(Works, NothingUnderWayIsDone) {
  Work work = {};
  EXPECT_TRUE(work.test());
  work.wait();
}

TEST_P(Works, GroupsOfRowsAndColumnsAreInFlightTogether) {
  run([&](Communicator world) {
    const int columns = world.size() % 2 == 0 ? 2 : 1;
    const int row = world.rank() / columns;
    const int column = world.rank() % columns;
    const Communicator rows = world.split(row, column, "world/rows");
    const Communicator cols = world.split(column, row, "world/columns");
    ASSERT_EQ(rows.size(), columns);
    ASSERT_EQ(rows.rank(), column);
    ASSERT_EQ(cols.size(), world.size() / columns);
    ASSERT_EQ(cols.rank(), row);
    EXPECT_EQ(rows.name(), "world/rows");
    for (int round = 0; round < 50; ++round) {
      SumUnderWay along_row{.value = world.rank()};
      SumUnderWay along_column{.value = world.rank()};
      SumUnderWay of_all{.value = world.rank()};
      start_sum(rows, along_row);
      start_sum(cols, along_column);
      start_sum(world, of_all);
      Work* order[] = {&along_row.work, &along_column.work, &of_all.work};
      std::rotate(order, order + (world.rank() + round) % 3, order + 3);
      for (Work* work : order) work->wait();
      int64_t row_sum = 0;
      int64_t column_sum = 0;
      for (int r = 0; r < world.size(); ++r) {
        if (r / columns == row) row_sum += r;
        if (r % columns == column) column_sum += r;
      }
      ASSERT_EQ(along_row.value, row_sum);
      ASSERT_EQ(along_column.value, column_sum);
      ASSERT_EQ(of_all.value, world.size() * (world.size() - 1) / 2);
    }
  });
}

TEST_P(Works, SplitOrdersByKeyAndLeavesNegativeColorsOut) {
  run([&](Communicator world) {
    const bool joins = world.rank() != 1;
    const Communicator group = world.split(joins ? 3 : -1, -world.rank(), "reversed");
    ASSERT_EQ(static_cast<bool>(group), joins);
    if (!joins) return;
    const int members = world.size() - (world.size() > 1 ? 1 : 0);
    ASSERT_EQ(group.size(), members);
    const int before = world.size() - 1 - world.rank();
    EXPECT_EQ(group.rank(), world.rank() == 0 ? members - 1 : before);
  });
}

TEST_P(Works, SubgroupsMeetWithoutBystanders) {
  run([&](Communicator world) {
    if (world.rank() == 0 && world.size() > 1) return;  // never calls anything
    std::vector<int> others;
    for (int r = world.size() - 1; r >= (world.size() > 1 ? 1 : 0); --r) others.push_back(r);
    const Communicator group = world.subgroup(others, "others");
    const Communicator again = world.subgroup(others, "again");
    EXPECT_EQ(group.rank(), world.size() - 1 - world.rank());
    SumUnderWay sum{.value = world.rank()};
    SumUnderWay other{.value = 1};
    start_sum(group, sum);
    start_sum(again, other);
    other.work.wait();
    sum.work.wait();
    EXPECT_EQ(sum.value, world.size() * (world.size() - 1) / 2);
    EXPECT_EQ(other.value, group.size());
    EXPECT_EQ(world.traffic().collectives, 0);
    EXPECT_FALSE(group == again);
  });
}

/// One step of a random program, the same on all ranks: a collective of a random kind, whose result
/// is checked when it is complete.
static void start_random(const Communicator& world, std::mt19937& random, Numbers& send,
                         Numbers& recv, std::vector<int64_t>& counts, Work& work) {
  const auto n = static_cast<size_t>(world.size());
  counts.assign(n, 0);
  for (int64_t& count : counts) count = static_cast<int64_t>(random() % 2 ? random() % 300 : 0);
  const DType dtype = kAllDTypes[random() % std::size(kAllDTypes)];
  const bool gathers = random() % 2 == 0;
  send =
      numbers_of(dtype, world.rank(), gathers ? count_of(counts, world.rank()) : total_of(counts));
  recv = Numbers(dtype, gathers ? total_of(counts) : count_of(counts, world.rank()));
  const Piece piece{.send = send.data(), .recv = recv.data(), .dtype = dtype, .counts = counts};
  work = gathers ? world.all_gather({&piece, 1}) : world.reduce_scatter({&piece, 1}, ReduceOp::max);
}

static void check_random(const Communicator& world, const Numbers& send, const Numbers& recv,
                         const std::vector<int64_t>& counts) {
  const bool gathered =
      send.size() == count_of(counts, world.rank()) && recv.size() == total_of(counts);
  const bool reduced =
      send.size() == total_of(counts) && recv.size() == count_of(counts, world.rank());
  if (gathered && reduced) return;  // one rank holds everything: both results are its own data
  int64_t at = 0;
  for (int r = 0; gathered && r < world.size(); ++r) {
    for (int64_t i = 0; i < count_of(counts, r); ++i) {
      ASSERT_EQ(recv.get(at++), value_of(recv.dtype(), r, i));
    }
  }
  for (int64_t i = 0; reduced && i < recv.size(); ++i) {
    double greatest = -1e9;
    for (int r = 0; r < world.size(); ++r) {
      const int64_t index = sum_of_first(counts, world.rank()) + i;
      greatest = std::max(greatest, value_of(recv.dtype(), r, index));
    }
    ASSERT_EQ(recv.get(i), greatest);
  }
}

TEST_P(Works, RandomSequences) {
  run([&](Communicator world) {
    for (unsigned seed = 0; seed < 5; ++seed) {
      std::mt19937 program(seed);
      std::mt19937 own_order(seed * 50 + static_cast<unsigned>(world.rank()));
      for (int round = 0; round < 10; ++round) {
        constexpr size_t in_flight = 6;
        std::vector<Numbers> send(in_flight, Numbers(f32, 0));
        std::vector<Numbers> recv(in_flight, Numbers(f32, 0));
        std::vector<std::vector<int64_t>> counts(in_flight);
        std::vector<Work> works(in_flight);
        for (size_t i = 0; i < in_flight; ++i) {
          start_random(world, program, send[i], recv[i], counts[i], works[i]);
          if (own_order() % 3 == 0) works[own_order() % (i + 1)].wait();
        }
        std::vector<size_t> order(in_flight);
        std::iota(order.begin(), order.end(), size_t{0});
        std::shuffle(order.begin(), order.end(), own_order);
        for (const size_t i : order) works[i].wait();
        for (size_t i = 0; i < in_flight; ++i) check_random(world, send[i], recv[i], counts[i]);
      }
    }
  });
}

}  // namespace weft

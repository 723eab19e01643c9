// SPDX-License-Identifier: Apache-2.0
#include <functional>

#include "src/comm/transport.h"
#include "tests/comm/backends.h"
#include "tests/support/scratch.h"
#include "weft/ranks.h"

namespace weft {

/// Makes every call of a rank, with uneven counts; returns when all are complete.
static void call_everything(const Communicator& world) {
  const auto n = static_cast<size_t>(world.size());
  std::vector<int64_t> counts(n);
  for (size_t r = 0; r < n; ++r) counts[r] = static_cast<int64_t>((r * 5 + 2) % 7);
  const int64_t total = total_of(counts);
  const std::vector<int64_t> twos(n, 2);
  std::vector<float> whole(static_cast<size_t>(total + 2 * world.size()));
  std::vector<float> other(whole.size());
  const Piece parts{.send = other.data(), .recv = whole.data(), .counts = counts};
  const Piece cut{.send = whole.data(), .recv = other.data(), .counts = counts};
  const Piece all{.send = whole.data(),
                  .recv = other.data(),
                  .dtype = bf16,
                  .counts = {&total, 1},
                  .recv_dtype = f32};
  world.barrier();
  world.all_gather({&parts, 1}).wait();
  world.reduce_scatter({&cut, 1}, ReduceOp::sum).wait();
  world.all_reduce({&all, 1}, ReduceOp::avg).wait();
  const Piece one{.send = whole.data(), .recv = other.data(), .counts = {&total, 1}};
  world.broadcast({&one, 1}, 1).wait();
  world.gather({&parts, 1}, 0).wait();
  world.scatter({&cut, 1}, world.size() - 1).wait();
  world.all_to_all({.send = whole.data(), .recv = other.data(), .counts = twos}, twos).wait();
  if (world.rank() == 0) world.send(whole.data(), 3, f32, 1).wait();
  if (world.rank() == 1) world.recv(whole.data(), 3, f32, 0).wait();
}

TEST(FakeWorld, CountsWhatThreadsCount) {
  for (const int ranks : {2, 3, 5}) {
    run_ranks(ranks, [&](Communicator world) {
      call_everything(world);
      const Communicator fake = fake_world(world.rank(), ranks);
      call_everything(fake);
      EXPECT_EQ(fake.traffic().bytes, world.traffic().bytes);
      EXPECT_EQ(fake.traffic().collectives, world.traffic().collectives);
      EXPECT_GT(fake.traffic().bytes, 0);
    });
  }
}

TEST(FakeWorld, OwnPartsAreCopied) {
  const Communicator world = fake_world(1, 3);
  const std::vector<int64_t> counts{2, 3, 1};
  float part[3] = {1, 2, 3};
  float whole[6] = {9, 9, 9, 9, 9, 9};
  const Piece gathered{.send = part, .recv = whole, .counts = counts};
  world.all_gather({&gathered, 1}).wait();
  EXPECT_EQ(std::vector<float>(whole, whole + 6), (std::vector<float>{9, 9, 1, 2, 3, 9}));
  EXPECT_EQ(world.traffic().bytes, 3 * 4);

  const Piece scattered{.send = whole, .recv = part, .counts = counts};
  part[0] = 0;
  world.reduce_scatter({&scattered, 1}, ReduceOp::sum).wait();
  EXPECT_EQ(part[0], 1);
  EXPECT_EQ(world.traffic().bytes, 3 * 4 + 2 * 3 * 4);

  float out[6] = {};
  const int64_t six = 6;
  const Piece reduced{.send = whole, .recv = out, .counts = {&six, 1}};
  world.all_reduce({&reduced, 1}, ReduceOp::max).wait();
  EXPECT_EQ(std::vector<float>(out, out + 6), std::vector<float>(whole, whole + 6));
}

TEST(FakeWorld, HostsFollowTheRanks) {
  const Communicator world = fake_world(5, 12, 4);
  EXPECT_EQ(world.rank(), 5);
  EXPECT_EQ(world.size(), 12);
  EXPECT_EQ(world.name(), "world");
  EXPECT_EQ(world.transport()->host_of(3), 0);
  EXPECT_EQ(world.transport()->host_of(4), 1);
  EXPECT_EQ(world.transport()->host_of(11), 2);
  EXPECT_TRUE(world.transport()->in_memory());
  EXPECT_FALSE(fake_world(0, 2, 1, false).transport()->in_memory());
  const std::vector<int> ranks{11, 5, 0};
  const Communicator group = world.subgroup(ranks, "world/three");
  EXPECT_EQ(group.rank(), 1);
  EXPECT_EQ(group.transport()->host_of(0), 2);
  EXPECT_EQ(group.name(), "world/three");
}

/// Counts the absent ranks passed to it.
class AbsentReader final : public ExchangeReader {
 public:
  int64_t read(int, std::span<const void* const> shown) override {
    int64_t absent = 0;
    for (const void* peer : shown) absent += peer == nullptr;
    return absent * 100;
  }
};

TEST(FakeWorld, AnExchangeSeesNullForAbsentRanks) {
  const Communicator world = fake_world(2, 4);
  AbsentReader reader;
  const MemoryBlock blocks[2] = {};
  world.transport()->exchange({.blocks = blocks}, reader);
  world.transport()->exchange({.blocks = {blocks, 1}}, reader);
  EXPECT_EQ(world.traffic().bytes, 3 * 100 * 3);
}

TEST(FakeWorld, ErrorsSayWhatIsWrong) {
  EXPECT_EQ(error_of([] { fake_world(0, 0); }), "fake_world: size is 0, expected 1 to 1048576");
  EXPECT_EQ(error_of([] { fake_world(0, INT32_MAX); }),
            "fake_world: size is 2147483647, expected 1 to 1048576");
  EXPECT_EQ(error_of([] { fake_world(4, 4); }), "fake_world: rank is 4, expected 0 to 3");
  EXPECT_EQ(error_of([] { fake_world(0, 4, 0); }),
            "fake_world: ranks_per_host must be at least 1, got 0");
  EXPECT_EQ(error_of([] { fake_world(0, 4).split(0, 0, "x"); }),
            "split: the colors of other ranks of world are unknown, expected ranks that exist; use "
            "subgroup");
}

}  // namespace weft

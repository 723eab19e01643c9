// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/scratch.h"
#include "weft/communicator.h"

namespace weft {

/// Rank 1 of 3: invalid arguments are detected before anything is sent.
static Communicator rank_of_three() { return fake_world(1, 3); }

static float memory[64];
static const std::vector<int64_t> kCounts{2, 3, 1};

static std::string gather_error(const Piece& piece) {
  return error_of([&] { rank_of_three().all_gather({&piece, 1}).wait(); });
}

TEST(Arguments, CountsAreOneARank) {
  const std::vector<int64_t> two{1, 2};
  EXPECT_EQ(gather_error({.send = memory, .recv = memory + 32, .counts = two}),
            "all_gather: number of counts of a piece is 2, expected 3");
  const std::vector<int64_t> negative{1, -2, 3};
  EXPECT_EQ(gather_error({.send = memory, .recv = memory + 32, .counts = negative}),
            "all_gather: count must be at least 0, got -2");
  const Piece piece{.send = memory, .recv = memory, .counts = kCounts};
  EXPECT_EQ(error_of([&] {
              rank_of_three().broadcast({&piece, 1}, 0).wait();
            }),
            "broadcast: number of counts of a piece is 3, expected 1");
  EXPECT_EQ(error_of([&] {
              const std::vector<int64_t> counts{1, 1};
              rank_of_three().all_to_all(piece, counts).wait();
            }),
            "all_to_all: number of counts of a piece is 2, expected 3");
}

TEST(Arguments, MemoryIsThereWhereItIsNeeded) {
  EXPECT_EQ(gather_error({.send = nullptr, .recv = memory, .counts = kCounts}),
            "all_gather: send is null, expected memory of 3 elements");
  EXPECT_EQ(gather_error({.send = memory, .recv = nullptr, .counts = kCounts}),
            "all_gather: recv is null, expected memory of 6 elements");
  const std::vector<int64_t> none{0, 0, 0};
  EXPECT_EQ(gather_error({.send = nullptr, .recv = nullptr, .counts = none}), "nothing");
}

TEST(Arguments, PartsOverlapAtTheirOwnPlaceOnly) {
  EXPECT_EQ(gather_error({.send = memory + 2, .recv = memory, .counts = kCounts}), "nothing");
  EXPECT_EQ(gather_error({.send = memory + 3, .recv = memory, .counts = kCounts}),
            "all_gather: send and recv overlap, expected separate memory, or the place of this "
            "rank in the result");
  EXPECT_EQ(gather_error({.send = memory + 6, .recv = memory, .counts = kCounts}), "nothing");
  const auto scatter_error = [&](const Piece& piece) {
    return error_of([&] { rank_of_three().reduce_scatter({&piece, 1}, ReduceOp::sum).wait(); });
  };
  EXPECT_EQ(scatter_error({.send = memory, .recv = memory + 2, .counts = kCounts}), "nothing");
  EXPECT_EQ(scatter_error({.send = memory, .recv = memory, .counts = kCounts}),
            "reduce_scatter: send and recv overlap, expected separate memory, or the place of this "
            "rank in the result");
}

TEST(Arguments, ABroadcastsRootGetsWhatItSendsWhereItLies) {
  const int64_t three = 3;
  const auto broadcast_error = [&](float* to, int root) {
    const Piece piece{.send = memory, .recv = to, .counts = {&three, 1}};
    return error_of([&] { rank_of_three().broadcast({&piece, 1}, root).wait(); });
  };
  EXPECT_EQ(broadcast_error(memory, 1), "nothing");
  EXPECT_EQ(broadcast_error(nullptr, 1), "nothing");
  EXPECT_EQ(broadcast_error(memory + 3, 1), "nothing");
  EXPECT_EQ(broadcast_error(memory + 1, 1),
            "broadcast: send and recv overlap, expected separate memory, or the place of this rank "
            "in the result");
  EXPECT_EQ(broadcast_error(memory + 1, 0), "nothing");
}

TEST(Arguments, ARankSendsItselfWhatItExpects) {
  const std::vector<int64_t> other{2, 1, 1};
  const Piece piece{.send = memory, .recv = memory + 32, .counts = kCounts};
  EXPECT_EQ(error_of([&] { rank_of_three().all_to_all(piece, other).wait(); }),
            "all_to_all: number of elements that rank 1 sends to itself is 3, expected 1, the "
            "number that it receives from itself");
  const int64_t two = 2, one = 1;
  const Piece alone{.send = memory, .recv = memory + 32, .counts = {&two, 1}};
  EXPECT_EQ(error_of([&] {
              fake_world(0, 1).all_to_all(alone, {&one, 1}).wait();
            }),
            "all_to_all: number of elements that rank 0 sends to itself is 2, expected 1, the "
            "number that it receives from itself");
}

TEST(Arguments, ReductionsThatDoNotExist) {
  const int64_t one = 1;
  const auto reduce_error = [&](const Piece& piece, ReduceOp op) {
    return error_of([&] { rank_of_three().all_reduce({&piece, 1}, op).wait(); });
  };
  EXPECT_EQ(reduce_error({.send = memory, .recv = memory, .dtype = i32, .counts = {&one, 1}},
                         ReduceOp::avg),
            "all_reduce: dtype is i32, expected a floating one for avg; cast it first");
  EXPECT_EQ(reduce_error({.send = memory,
                          .recv = memory + 8,
                          .dtype = i32,
                          .counts = {&one, 1},
                          .recv_dtype = f32},
                         ReduceOp::sum),
            "all_reduce: dtype of the result is f32, expected i32; only floating dtypes convert");
  EXPECT_EQ(
      reduce_error({.send = memory, .recv = memory + 8, .counts = {&one, 1}, .accumulate = true},
                   ReduceOp::sum),
      "all_reduce: accumulate is true, expected false; only reduce_scatter accumulates");
  EXPECT_EQ(
      gather_error({.send = memory, .recv = memory + 8, .counts = kCounts, .recv_dtype = bf16}),
      "all_gather: recv_dtype is bf16, expected f32, the dtype; only reductions convert");
}

TEST(Arguments, RanksAreThere) {
  const int64_t one = 1;
  const Piece piece{.send = memory, .recv = memory, .counts = {&one, 1}};
  EXPECT_EQ(error_of([&] {
              rank_of_three().broadcast({&piece, 1}, 3).wait();
            }),
            "broadcast: rank is 3, expected 0 to 2");
  EXPECT_EQ(error_of([&] { rank_of_three().send(memory, 1, f32, -1).wait(); }),
            "send: rank is -1, expected 0 to 2");
  EXPECT_EQ(error_of([&] { rank_of_three().recv(memory, 1, f32, 1).wait(); }),
            "recv: the other rank is 1, expected another than this one");
  EXPECT_EQ(error_of([&] { Communicator().barrier(); }),
            "communicator: this rank is not in the group, expected a rank of it");
}

TEST(Arguments, SubgroupsNameEachRankOnce) {
  const auto subgroup_error = [](std::vector<int> ranks) {
    return error_of([&] { rank_of_three().subgroup(ranks, "x"); });
  };
  EXPECT_EQ(subgroup_error({0, 1, 3}), "subgroup: rank is 3, expected 0 to 2");
  EXPECT_EQ(subgroup_error({1, 0, 1}), "subgroup: rank 1 is named twice, expected once");
  EXPECT_EQ(subgroup_error({0, 2}),
            "subgroup: the ranks do not include rank 1, expected the calling rank among them");
}

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include "mesh/mesh_move.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <utility>
#include <vector>

namespace weft {

namespace {

Pattern cut(int axes, std::initializer_list<std::pair<int, Placement>> placements) {
  Pattern pattern(axes);
  for (const auto& [axis, placement] : placements) pattern.set(axis, placement);
  return pattern;
}

/// The parts of a [4, 6] tensor of f32 from 2 ranks that cut its rows to 2 that cut its columns.
MeshMovePlan rows_to_columns(std::vector<int> to, int64_t round_bytes = 0) {
  const MovedTensor tensor{"w", {4, 6}, f32, cut(1, {{0, Shard(0)}}), cut(1, {{0, Shard(1)}})};
  return {{tensor},
          {"mesh(a=2)", {2}, {0, 1}},
          {"mesh(b=2)", {2}, std::move(to)},
          {0, 0, 0, 0},
          round_bytes};
}

}  // namespace

TEST(MeshMove, SendsWhatARankLacks) {
  const MeshMovePlan apart = rows_to_columns({2, 3}), same = rows_to_columns({0, 1});
  EXPECT_EQ(apart.received_bytes(2), 4 * 3 * 4);
  EXPECT_EQ(apart.kept_bytes(2), 0);
  EXPECT_EQ(apart.sent_bytes(0), 2 * 6 * 4);
  EXPECT_EQ(same.received_bytes(0), 2 * 3 * 4);
  EXPECT_EQ(same.kept_bytes(0), 2 * 3 * 4);
  EXPECT_EQ(same.received_bytes(1) + same.kept_bytes(1), 4 * 3 * 4);
}

TEST(MeshMove, PrefersSendersOnTheHostAndThenIdleOnes) {
  std::vector<MovedTensor> tensors(4, {"w", {4}, f32, cut(1, {}), cut(1, {})});
  const MeshRanks from{"a", {3}, {0, 1, 2}}, to{"b", {1}, {3}};
  const MeshMovePlan near(tensors, from, to, {0, 1, 1, 1}, 0);
  EXPECT_EQ(near.sent_bytes(0), 0);
  EXPECT_EQ(near.sent_bytes(1), 32);
  EXPECT_EQ(near.sent_bytes(2), 32);
  const MeshMovePlan far(tensors, from, to, {0, 0, 0, 1}, 0);
  EXPECT_EQ(far.sent_bytes(0), 32);
  EXPECT_EQ(far.sent_bytes(1), 16);
}

TEST(MeshMove, KeepsRoundsWithinTheirBytes) {
  for (const int64_t bytes : {1, 4, 8, 20, 1000}) {
    const MeshMovePlan plan = rows_to_columns({2, 3}, bytes);
    std::map<std::pair<int, int>, int64_t> sent, received;
    int64_t elements = 0;
    for (const MovedPart& part : plan.parts()) {
      sent[{part.round, part.from}] += plan.bytes_of(part);
      received[{part.round, part.to}] += plan.bytes_of(part);
      elements += part.box.shape.product();
    }
    EXPECT_EQ(elements, 24);
    for (const auto& [key, load] : sent) EXPECT_LE(load, std::max<int64_t>(bytes, 4));
    for (const auto& [key, load] : received) EXPECT_LE(load, std::max<int64_t>(bytes, 4));
    if (bytes == 1000) {
      EXPECT_EQ(plan.rounds(), 1);
    }
    if (bytes == 20) {
      EXPECT_LE(plan.rounds(), 4);
    }
  }
}

TEST(MeshMove, PrintsWhatEachRankReceives) {
  EXPECT_EQ(rows_to_columns({1, 2}).in_words(),
            "mesh(a=2) of ranks 0, 1 -> mesh(b=2) of ranks 1, 2\n"
            "w: [4, 6] f32 [S(0)] -> [S(1)]\n"
            "rank 1: receives 24 B from rank 0, keeps 24 B\n"
            "rank 2: receives 24 B from rank 0, 24 B from rank 1, keeps 0 B\n"
            "moved 72 B in 1 round; a rank sends at most 48 B and receives at most 48 B\n");
}

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include "src/comm/collective_parts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "src/base/numeric.h"

namespace weft {

static std::vector<std::vector<float>> random_sources(size_t n, size_t size) {
  std::mt19937 random(17);
  std::normal_distribution<float> normal(0, 100);
  std::vector<std::vector<float>> sources(n, std::vector<float>(size));
  for (auto& source : sources) {
    for (float& x : source) x = normal(random);
  }
  return sources;
}

static std::vector<const void*> pointers_to(const std::vector<std::vector<float>>& sources) {
  std::vector<const void*> pointers;
  for (const auto& source : sources) pointers.push_back(source.data());
  return pointers;
}

/// Adds neighbours, then neighbours of these sums, until one is left.
static std::vector<float> sum_in_tree(std::vector<std::vector<float>> sums) {
  while (sums.size() > 1) {
    std::vector<std::vector<float>> pairs;
    for (size_t s = 0; s < sums.size(); s += 2) {
      pairs.push_back(sums[s]);
      if (s + 1 == sums.size()) break;
      for (size_t i = 0; i < pairs.back().size(); ++i) pairs.back()[i] += sums[s + 1][i];
    }
    sums = pairs;
  }
  return sums[0];
}

TEST(ReduceN, SumsMoreThanTheCachesHold) {
  const size_t size = (size_t{2} << 20) + 37;
  for (const size_t n : {1, 2, 3, 4}) {
    auto sources = random_sources(n, size);
    const std::vector<float> expected = sum_in_tree(sources);
    std::vector<float> into(size + 1, -1);
    reduce_n(ReduceOp::sum, DType::f32, pointers_to(sources), {into.data() + 1},
             static_cast<int64_t>(size));
    EXPECT_EQ(into[0], -1);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), into.begin() + 1)) << n;
    // The result may take the place of a source.
    reduce_n(ReduceOp::sum, DType::f32, pointers_to(sources), {sources[n - 1].data()},
             static_cast<int64_t>(size));
    EXPECT_EQ(sources[n - 1], expected) << n;
  }
}

TEST(ReduceN, SumsInATreeForAnyNumberOfSourcesAndBlocks) {
  for (const size_t n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 40}) {
    for (const size_t size : {1, 31, 2048, 5000}) {
      const auto sources = random_sources(n, size);
      std::vector<float> out(size);
      reduce_n(ReduceOp::sum, f32, pointers_to(sources), {out.data()}, static_cast<int64_t>(size));
      ASSERT_EQ(out, sum_in_tree(sources)) << n << " sources of " << size;
    }
  }
}

TEST(ReduceN, TheResultMayBeAnyOfTheSources) {
  for (const size_t n : {1, 2, 3, 4, 5, 6, 8}) {
    for (size_t own = 0; own < n; ++own) {
      auto sources = random_sources(n, 3000);
      const auto expected = sum_in_tree(sources);
      reduce_n(ReduceOp::sum, f32, pointers_to(sources), {sources[own].data()}, 3000);
      ASSERT_EQ(sources[own], expected) << n << " sources, into " << own;
    }
  }
}

TEST(ReduceN, AddsToWhatIsThere) {
  const auto sources = random_sources(3, 2500);
  std::vector<float> out(2500, 5.5f);
  reduce_n(ReduceOp::sum, f32, pointers_to(sources), {out.data(), f32, true}, 2500);
  const auto sum = sum_in_tree(sources);
  for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], 5.5f + sum[i]);
}

TEST(ReduceN, HalvesAreAddedInFloatAndRoundedOnce) {
  // 256 + 1 + 1 is 258 in float; in bf16 each 256 + 1 would round to 256.
  const bfloat16 a(256.0f);
  const bfloat16 b(1.0f);
  const void* sources[] = {&a, &b, &b};
  bfloat16 half;
  float whole = 0;
  reduce_n(ReduceOp::sum, bf16, sources, {&half, bf16}, 1);
  reduce_n(ReduceOp::sum, bf16, sources, {&whole, f32}, 1);
  EXPECT_EQ(static_cast<float>(half), 258.0f);
  EXPECT_EQ(whole, 258.0f);
  const float third = 1.0f / 3.0f;
  const float wide[] = {third, third};
  const void* floats[] = {&wide[0], &wide[1]};
  reduce_n(ReduceOp::avg, f32, floats, {&half, bf16}, 1);
  EXPECT_EQ(half.bits, bfloat16(third).bits);
}

TEST(ReduceN, NaNsStay) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float values[] = {1, nan, 2};
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::max, ReduceOp::min}) {
    for (int shift = 0; shift < 3; ++shift) {
      const void* sources[] = {&values[shift], &values[(shift + 1) % 3], &values[(shift + 2) % 3]};
      float out = 0;
      reduce_n(op, f32, sources, {&out}, 1);
      EXPECT_TRUE(std::isnan(out)) << op;
    }
  }
}

TEST(ReduceN, IntegersWrapAndBoolsAreJoined) {
  const uint8_t bytes[] = {200, 100};
  const void* byte_sources[] = {&bytes[0], &bytes[1]};
  uint8_t byte = 0;
  reduce_n(ReduceOp::sum, u8, byte_sources, {&byte, u8}, 1);
  EXPECT_EQ(byte, 44);
  const int64_t large[] = {std::numeric_limits<int64_t>::max(), 2};
  const void* large_sources[] = {&large[0], &large[1]};
  int64_t wrapped = 0;
  reduce_n(ReduceOp::sum, i64, large_sources, {&wrapped, i64}, 1);
  EXPECT_EQ(wrapped, std::numeric_limits<int64_t>::min() + 1);
  const int32_t negative[] = {-5, 3};
  const void* negative_sources[] = {&negative[0], &negative[1]};
  int32_t least = 0;
  reduce_n(ReduceOp::min, i32, negative_sources, {&least, i32}, 1);
  EXPECT_EQ(least, -5);
  const bool truths[] = {true, true, false};
  const void* truth_sources[] = {&truths[0], &truths[1], &truths[2]};
  bool any = false;
  reduce_n(ReduceOp::sum, boolean, truth_sources, {&any, boolean}, 1);
  EXPECT_TRUE(any);
  bool every = true;
  reduce_n(ReduceOp::min, boolean, truth_sources, {&every, boolean}, 1);
  EXPECT_FALSE(every);
}

}  // namespace weft

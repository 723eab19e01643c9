// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/random/random.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/kernels/array.h"

namespace weft {
namespace {

using Four = std::array<uint32_t, 4>;
constexpr RandomState kState{0x123456789abcdef0u, 77};

Four philox(Four counter, std::array<uint32_t, 2> key) {
  Philox{key[0], key[1]}(counter[0], counter[1], counter[2], counter[3]);
  return counter;
}

Box whole(const Shape& shape) { return {Dims::filled(shape.ndim(), 0), shape}; }

// Known answers of Random123 (kat_vectors: philox 4x32 10).
TEST(Random, PhiloxGivesTheKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, UniformIsTheWordOfTheElement) {
  const Array out(f32, {5000});
  fill_random(out.block, whole({5000}), {5000}, kState, uniform_in(0, 1, out.block.dtype));
  for (int64_t e : {0, 1, 2, 3, 4, 1019, 1020, 1021, 4999}) {
    const Four words = philox({static_cast<uint32_t>(e / 4), 0, 77, 0}, {0x9abcdef0u, 0x12345678u});
    EXPECT_EQ(out[e], (words[static_cast<size_t>(e % 4)] >> 8) * 0x1p-24) << e;
  }
}

struct BoxCase {
  Shape shape;
  Box box;
};

const BoxCase kBoxes[] = {
    {{10, 300}, {{3, 0}, {4, 300}}},     {{10, 300}, {{0, 101}, {10, 99}}},
    {{10, 300}, {{9, 299}, {1, 1}}},     {{10, 300}, {{5, 0}, {0, 300}}},
    {{7, 5, 3}, {{2, 1, 0}, {3, 2, 3}}}, {{7, 5, 3}, {{0, 0, 1}, {7, 5, 2}}},
    {{4000}, {{1001}, {2777}}},          {{3, 2000}, {{1, 3}, {2, 1997}}},
};

template <class Fill> void expect_boxes_are_slices(DType dtype, const Fill& fill) {
  for (const BoxCase& c : kBoxes) {
    const Array all(dtype, c.shape);
    fill(all.block, whole(c.shape), c.shape);
    for (Lie lie : {Lie::dense, Lie::transposed}) {
      const Array part(dtype, c.box.shape, lie);
      fill(part.block, c.box, c.shape);
      Array slice(dtype, c.shape);
      slice.block = all.block.part(c.box);
      ASSERT_EQ(part.values(), slice.values()) << c.shape << c.box.offset;
    }
  }
}

TEST(Random, BoxesAreSlicesOfTheWhole) {
  for (DType dtype : {f32, bf16, f64}) {
    expect_boxes_are_slices(dtype, [](const MemoryBlock& out, const Box& box, const Shape& shape) {
      fill_random(out, box, shape, kState, uniform_in(-1, 2, out.dtype));
    });
    expect_boxes_are_slices(dtype, [](const MemoryBlock& out, const Box& box, const Shape& shape) {
      fill_random(out, box, shape, kState, normal_of(1, 0.5));
    });
    expect_boxes_are_slices(dtype, [](const MemoryBlock& out, const Box& box, const Shape& shape) {
      fill_random(out, box, shape, kState, uniform_in(1, 2, out.dtype));
      dropout(out, out, box, shape, kState, 0.3);
    });
  }
  expect_boxes_are_slices(i64, [](const MemoryBlock& out, const Box& box, const Shape& shape) {
    fill_random(out, box, shape, kState, uniform_in(-3, 100, out.dtype));
  });
}

struct Moments {
  double mean = 0, variance = 0, fourth = 0, low = 1e9, high = -1e9;
};

Moments moments(const std::vector<double>& values) {
  Moments m;
  const auto n = static_cast<double>(values.size());
  for (double x : values) m.mean += x / n;
  for (double x : values) {
    const double d = x - m.mean;
    m.variance += d * d / n;
    m.fourth += d * d * d * d / n;
    m.low = std::min(m.low, x);
    m.high = std::max(m.high, x);
  }
  return m;
}

// Bounds are about five standard errors of a million samples.
TEST(Random, MomentsAreThoseOfTheDistributions) {
  const Shape shape{1000, 1000};
  const Array out(f32, shape);
  fill_random(out.block, whole(shape), shape, kState, normal_of(0, 1));
  Moments m = moments(out.values());
  EXPECT_NEAR(m.mean, 0, 0.005);
  EXPECT_NEAR(m.variance, 1, 0.007);
  EXPECT_NEAR(m.fourth, 3, 0.05);
  EXPECT_GT(m.high, 4.2);
  EXPECT_LT(m.low, -4.2);
  fill_random(out.block, whole(shape), shape, kState, uniform_in(-2, 1, out.block.dtype));
  m = moments(out.values());
  EXPECT_NEAR(m.mean, -0.5, 0.005);
  EXPECT_NEAR(m.variance, 0.75, 0.004);
  EXPECT_GE(m.low, -2);
  EXPECT_LT(m.high, 1);
  const Array ones = Array::of(f32, shape, std::vector<double>(1'000'000, 1.0));
  dropout(out.block, ones.block, whole(shape), shape, kState, 0.7);
  m = moments(out.values());
  EXPECT_NEAR(m.mean, 1, 0.008);
  EXPECT_EQ(m.low, 0);
  EXPECT_NEAR(m.high, 1 / 0.3, 1e-6);
}

TEST(Random, NeighboursAndStreamsAreNotAlike) {
  const Shape shape{100000};
  const Array a(f32, shape), b(f32, shape), c(f32, shape);
  fill_random(a.block, whole(shape), shape, {1, 0}, normal_of(0, 1));
  fill_random(b.block, whole(shape), shape, {1, 1}, normal_of(0, 1));
  fill_random(c.block, whole(shape), shape, {2, 0}, normal_of(0, 1));
  for (int64_t lag : {1, 2, 3, 4}) {
    double sum = 0;
    for (int64_t i = lag; i < 100000; ++i) sum += a[i] * a[i - lag] / 100000;
    EXPECT_NEAR(sum, 0, 0.016) << lag;
  }
  for (const Array* other : {&b, &c}) {
    double sum = 0;
    for (int64_t i = 0; i < 100000; ++i) sum += a[i] * (*other)[i] / 100000;
    EXPECT_NEAR(sum, 0, 0.016);
  }
}

TEST(Random, IntegersCoverTheirRange) {
  const Shape shape{10000};
  const Array out(i32, shape);
  fill_random(out.block, whole(shape), shape, kState, integers_in(-2, 3));
  std::array<int, 5> counts{};
  for (double x : out.values()) ++counts.at(static_cast<size_t>(x + 2));
  for (int count : counts) EXPECT_NEAR(count, 2000, 200);
}

TEST(Random, LargeIntegersAreAsExact) {
  const Shape shape{10000};
  const Array out(i64, shape);
  for (const int64_t low : {int64_t{1} << 24, int64_t{1} << 50, -(int64_t{1} << 62)}) {
    fill_random(out.block, whole(shape), shape, kState, integers_in(low, low + 10));
    std::array<int, 10> counts{};
    for (int64_t i = 0; i < 10000; ++i) {
      ++counts.at(static_cast<size_t>(out.block.as<int64_t>()[i] - low));
    }
    for (int count : counts) EXPECT_NEAR(count, 1000, 150);
  }
  fill_random(out.block, whole(shape), shape, kState, integers_in(0, int64_t{1} << 32));
  int64_t odd = 0;
  for (int64_t i = 0; i < 10000; ++i) odd += out.block.as<int64_t>()[i] % 2;
  EXPECT_NEAR(static_cast<double>(odd), 5000, 250);
  EXPECT_THROW(
      fill_random(out.block, whole(shape), shape, kState, integers_in(0, (int64_t{1} << 32) + 1)),
      std::invalid_argument);
  EXPECT_THROW(fill_random(out.block, whole(shape), shape, kState, integers_in(3, 3)),
               std::invalid_argument);
}

TEST(Random, UniformStaysBelowItsEndInAnyDtype) {
  const Shape shape{100000};
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32, DType::f64}) {
    const Array out(dtype, shape);
    for (const auto& [low, high] : {std::pair(0.0, 1.0), {2.0, 3.0}, {-1.0, 0.0}, {-3.0, -2.0}}) {
      fill_random(out.block, whole(shape), shape, kState, uniform_in(low, high, out.block.dtype));
      for (double x : out.values()) {
        ASSERT_GE(x, low);
        ASSERT_LT(x, high);
      }
    }
  }
}

TEST(Random, UniformOfNoLengthIsItsStart) {
  const Shape shape{10};
  for (const DType dtype : {f32, bf16, f16}) {
    for (const double at : {1.0, 0.0, -2.0}) {
      const Array out(dtype, shape);
      fill_random(out.block, whole(shape), shape, kState, uniform_in(at, at, out.block.dtype));
      EXPECT_EQ(out.values(), std::vector<double>(10, at)) << dtype;
    }
  }
}

TEST(Random, DropoutKeepsTheMeanAndItsGradientTheMask) {
  const Shape shape{200, 500};
  const Array ones(f32, shape), out(f32, shape), again(bf16, shape);
  for (int64_t i = 0; i < 100000; ++i) ones.block.as<float>()[i] = 1;
  dropout(out.block, ones.block, whole(shape), shape, kState, 0.25);
  dropout(again.block, ones.block, whole(shape), shape, kState, 0.25);
  int64_t kept = 0;
  for (int64_t i = 0; i < 100000; ++i) {
    ASSERT_TRUE(out[i] == 0 || out[i] == static_cast<float>(1 / 0.75));
    ASSERT_EQ(out[i] == 0, again[i] == 0);
    kept += out[i] != 0;
  }
  EXPECT_NEAR(static_cast<double>(kept), 75000, 700);
  dropout(out.block, ones.block, whole(shape), shape, kState, 1);
  EXPECT_EQ(moments(out.values()).high, 0);
  dropout(out.block, ones.block, whole(shape), shape, kState, 0);
  EXPECT_EQ(moments(out.values()).low, 1);
}

TEST(Random, RefusesABoxThatIsNotOfTheShape) {
  const Array out(f32, {3, 4});
  EXPECT_THROW(
      fill_random(out.block, {{0, 1}, {3, 4}}, {3, 4}, kState, uniform_in(0, 1, out.block.dtype)),
      std::invalid_argument);
  EXPECT_THROW(fill_random(out.block, whole({3, 5}), {3, 5}, kState, normal_of(0, 1)),
               std::invalid_argument);
}

}  // namespace
}  // namespace weft

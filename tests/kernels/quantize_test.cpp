// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "src/kernels/quantize/quantize.h"
#include "tests/kernels/array.h"

namespace weft {
namespace {

constexpr int64_t kBlock = 16;

struct Codes {
  Array codes, scales;
  Codes(DType dtype, int64_t n)
      : codes(dtype, {1, n}), scales(f32, {1, std::max<int64_t>(scales_of(dtype, n, kBlock), 1)}) {}
};

Codes quantized(const Array& in, DType dtype, const CodeRounding& rounding = {}) {
  Codes made(dtype, in.block.numel());
  quantize_blocks(made.codes.block, made.scales.block, in.block, {}, kBlock, rounding);
  return made;
}

std::vector<double> values_of(const Codes& codes, const Shape& shape, Lie lie = Lie::dense) {
  const Array out(f32, shape, lie);
  dequantize_blocks(out.block, codes.codes.block, codes.scales.block, kBlock, false);
  return out.values();
}

/// The greatest magnitude in each element's block.
std::vector<double> greatest_of(const std::vector<double>& values) {
  std::vector<double> greatest(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t begin = i / kBlock * kBlock, end = std::min(values.size(), begin + kBlock);
    for (size_t j = begin; j < end; ++j) greatest[i] = std::max(greatest[i], std::abs(values[j]));
  }
  return greatest;
}

TEST(Quantize, RoundsToNearestWithinEachBlock) {
  for (const DType from : {f32, bf16, f16, f64}) {
    // Rows of a matrix with gaps between them, whose elements form one sequence.
    Array in = Array::random(from, {3, 37}, Lie::dense, 5);
    const std::vector<double> values = in.values(), greatest = greatest_of(values);
    const Codes ints = quantized(in, i8), floats = quantized(in, f8_e4m3);
    const auto int_values = values_of(ints, {3, 37}), float_values = values_of(floats, {3, 37});
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(int_values[i], values[i], greatest[i] / 254 * 1.0001) << from;
      // 3 bits of fraction, or the smallest numbers of the format.
      const double bound = std::max(std::abs(values[i]) / 16, greatest[i] / 448 * 0x1p-10);
      EXPECT_NEAR(float_values[i], values[i], bound * 1.0001) << from;
    }
  }
}

TEST(Quantize, ReadsAndWritesRowsWithGaps) {
  const Array whole = Array::random(f32, {3, 40}, Lie::dense, 3);
  MemoryBlock part = whole.block;
  part.shape[1] = 11;
  const Array dense(f32, {3, 11});
  for (int64_t i = 0; i < 33; ++i) {
    dense.block.as<float>()[i] = whole.block.as<float>()[i / 11 * 40 + i % 11];
  }
  Codes of_part(i8, 33);
  quantize_blocks(of_part.codes.block, of_part.scales.block, part, {}, kBlock, {});
  const Codes of_dense = quantized(dense, i8);
  EXPECT_EQ(of_part.codes.values(), of_dense.codes.values());
  EXPECT_EQ(of_part.scales.values(), of_dense.scales.values());
  const std::vector<double> expected = values_of(of_dense, {3, 11});
  const std::vector<double> before = whole.values();
  dequantize_blocks(part, of_part.codes.block, of_part.scales.block, kBlock, true);
  for (int64_t i = 0; i < 120; ++i) {
    const bool is_part = i % 40 < 11;
    const double added = is_part ? expected[static_cast<size_t>(i / 40 * 11 + i % 40)] : 0;
    EXPECT_NEAR(whole.values()[static_cast<size_t>(i)], before[static_cast<size_t>(i)] + added,
                1e-6);
  }
}

TEST(Quantize, KeepsZerosAndShowsNaNAndInfinity) {
  std::vector<double> values(3 * kBlock, 0);
  values[kBlock + 2] = std::numeric_limits<double>::infinity();
  values[2 * kBlock + 1] = std::nan("");
  for (const DType dtype : {i8, f8_e4m3}) {
    for (const bool stochastic : {false, true}) {
      const Array in = Array::of(f32, {1, 3 * kBlock}, values);
      const auto seen = values_of(quantized(in, dtype, {stochastic, {1, 2}, 0}), {1, 3 * kBlock});
      for (size_t i = 0; i < seen.size(); ++i) {
        EXPECT_TRUE(i < kBlock ? seen[i] == 0 : std::isnan(seen[i])) << i;
      }
    }
  }
  const Array in = Array::of(f32, {1, 2}, {values[kBlock + 2], values[2 * kBlock + 1]});
  const auto seen = values_of(quantized(in, bf16, {true, {1, 2}, 0}), {1, 2});
  EXPECT_TRUE(std::isinf(seen[0]) && std::isnan(seen[1]));
}

TEST(Quantize, RoundsStochasticallyWithoutBias) {
  for (const DType dtype : {i8, bf16}) {
    const int64_t n = 4096;
    std::vector<double> same(static_cast<size_t>(n), dtype == i8 ? 0.3 : 1 + 0.3 * 0x1p-7);
    for (int64_t i = 0; i < n; i += kBlock) same[static_cast<size_t>(i)] = dtype == i8 ? 127 : 2;
    const Array in = Array::of(f32, {1, n}, same);
    const auto seen = values_of(quantized(in, dtype, {true, {7, 3}, 0}), {1, n});
    double mean = 0;
    for (int64_t i = 0; i < n; ++i) {
      if (i % kBlock) mean += (seen[static_cast<size_t>(i)] - same[static_cast<size_t>(i)]);
    }
    mean /= static_cast<double>(n - n / kBlock);
    const double step = dtype == i8 ? 1 : 0x1p-7;
    EXPECT_NEAR(mean, 0, 0.03 * step) << dtype;  // 4 standard deviations
    EXPECT_EQ(seen, values_of(quantized(in, dtype, {true, {7, 3}, 0}), {1, n}));
    EXPECT_NE(seen, values_of(quantized(in, dtype, {true, {7, 4}, 0}), {1, n}));
    EXPECT_NE(seen, values_of(quantized(in, dtype, {true, {7, 3}, 4}), {1, n}));
  }
}

TEST(Quantize, FeedsTheErrorBack) {
  const Array in = Array::of(f32, {1, 4}, {127, 0.25, -0.25, 0.4}), residual(f32, {1, 4});
  residual.block.as<float>()[0] = residual.block.as<float>()[1] = 0;
  residual.block.as<float>()[2] = residual.block.as<float>()[3] = 0;
  std::vector<double> sum(4);
  for (int step = 0; step < 8; ++step) {
    Codes made(i8, 4);
    quantize_blocks(made.codes.block, made.scales.block, in.block, residual.block, kBlock, {});
    const auto values = values_of(made, {1, 4});
    for (size_t i = 0; i < 4; ++i) sum[i] += values[i];
  }
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(sum[i] + residual.values()[i], 8 * in.values()[i], 1e-4);
  }
  EXPECT_EQ(sum[1], 2);
}

TEST(Quantize, FeedsNeitherNaNNorInfinityBack) {
  const Array good = Array::of(f32, {1, 4}, {127, 0.25, -0.25, 0.4});
  for (const DType dtype : {i8, bf16}) {
    // The last one is rounded to infinity.
    for (const double value : {std::nan(""), HUGE_VAL, -HUGE_VAL, 0x1.fffffep127}) {
      const Array bad = Array::of(f32, {1, 4}, {1, value, 0.5, 0.3}), residual(f32, {1, 4});
      for (int64_t i = 0; i < 4; ++i) residual.block.as<float>()[i] = 0.125f;
      for (const Array* in : {&bad, &good}) {
        Codes made(dtype, 4);
        quantize_blocks(made.codes.block, made.scales.block, in->block, residual.block, kBlock, {});
        for (const double rest : residual.values()) EXPECT_TRUE(std::isfinite(rest)) << value;
        if (in == &bad) continue;
        for (const double seen : values_of(made, {1, 4})) EXPECT_TRUE(std::isfinite(seen)) << value;
      }
    }
  }
}

TEST(Quantize, SumsArraysInF32) {
  const int64_t n = 37, blocks = scales_of(i8, n, kBlock);
  const Array codes(i8, {3, n}), scales(f32, {3, blocks});
  std::vector<double> expected(static_cast<size_t>(n));
  for (int64_t r = 0; r < 3; ++r) {
    const Array in = Array::random(f32, {1, n}, Lie::dense, static_cast<unsigned>(r));
    const Codes one = quantized(in, i8);
    for (int64_t i = 0; i < n; ++i) {
      codes.block.as<int8_t>()[r * n + i] = one.codes.block.as<int8_t>()[i];
    }
    for (int64_t i = 0; i < blocks; ++i) {
      scales.block.as<float>()[r * blocks + i] = one.scales.block.as<float>()[i];
    }
    const auto values = values_of(one, {1, n});
    for (size_t i = 0; i < expected.size(); ++i) {
      expected[i] =
          static_cast<double>(static_cast<float>(expected[i]) + static_cast<float>(values[i]));
    }
  }
  const Array out(f32, {1, n});
  dequantize_blocks(out.block, codes.block, scales.block, kBlock, false);
  EXPECT_EQ(out.values(), expected);
}

}  // namespace
}  // namespace weft

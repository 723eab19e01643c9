// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/matmul/gemm.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "src/kernels/copy/copy.h"
#include "src/kernels/kernel.h"
#include "src/kernels/matmul/product.h"
#include "src/kernels/matmul/tasks.h"
#include "tests/matmul/strided_array.h"
#include "tests/support/scratch.h"

namespace weft {

/// The row-major index into an operand of batch `shape` (aligned right) for batch index `index` of
/// `out`.
static int64_t batch_index(const Shape& shape, const Shape& out, int64_t index) {
  int64_t at = 0, stride = 1;
  for (int i = out.ndim() - 3; i >= 0; --i) {
    const int own = i - (out.ndim() - shape.ndim());
    const int64_t here = index % out[i];
    index /= out[i];
    if (own < 0) continue;
    if (shape[own] != 1) at += here * stride;
    stride *= shape[own];
  }
  return at;
}

/// a @ b + bias + beta * out in plain double loops over logical indices.
static std::vector<double> plain_gemm(const StridedArray& a, const StridedArray& b,
                                      const StridedArray* bias, const StridedArray& out,
                                      double beta) {
  const Shape& shape = out.block().shape;
  const int n_dim = shape.ndim() - 1;
  const int64_t m = shape[n_dim - 1], n = shape[n_dim], k = a.block().shape.back();
  const auto a_values = a.values(), b_values = b.values(), old = out.values();
  std::vector<double> result;
  for (int64_t i = 0; i < out.numel(); ++i) {
    const int64_t batch = i / (m * n), row = i / n % m, column = i % n;
    const int64_t a_at = (batch_index(a.block().shape, shape, batch) * m + row) * k;
    const int64_t b_at = batch_index(b.block().shape, shape, batch) * k * n + column;
    double sum = bias ? bias->at(column) : 0;
    for (int64_t l = 0; l < k; ++l) {
      sum += a_values[static_cast<size_t>(a_at + l)] * b_values[static_cast<size_t>(b_at + l * n)];
    }
    if (beta != 0) sum += beta * old[static_cast<size_t>(i)];
    result.push_back(out.block().dtype == u8 ? std::fmod(sum, 256) : sum);  // integers wrap
  }
  return result;
}

/// A random shape whose batch dims broadcast to `batch`.
static Shape broadcastable(const Shape& batch, int64_t rows, int64_t columns,
                           std::mt19937& random) {
  const auto skipped = static_cast<int>(random() % static_cast<unsigned>(batch.ndim() + 1));
  Shape shape;
  for (int i = skipped; i < batch.ndim(); ++i) shape.push_back(random() % 3 == 0 ? 1 : batch[i]);
  shape.push_back(rows);
  shape.push_back(columns);
  return shape;
}

/// An array with dims in the usual order, with the last two exchanged, or in any order.
static StridedArray any_layout(DType dtype, const Shape& shape, std::mt19937& random) {
  std::vector<int> order;
  for (int i = 0; i < shape.ndim(); ++i) order.push_back(i);
  const unsigned choice = random() % 4;
  if (choice == 1) std::swap(order[order.size() - 1], order[order.size() - 2]);
  if (choice == 2) std::shuffle(order.begin(), order.end(), random);
  StridedArray array(dtype, shape, order, random() % 3 == 0 ? 3 : 0);
  array.randomize(random);
  return array;
}

static double allowed(DType operands, DType out, int64_t k) {
  // Sums of products of magnitude up to 1 lose at most about k / 4 roundings of f32.
  const double sums = operands == DType::f64 ? 1e-15 : is_floating(operands) ? 6e-8 : 0;
  return tolerance_of(out) + sums * static_cast<double>(k);
}

class Gemm : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Gemm, testing::Values(f32, bf16, f16, f64, i32, i64, u8),
                         [](const auto& p) { return std::string(name_of(p.param)); });

TEST_P(Gemm, EqualsPlainLoopsForAnyShapeAndStrides) {
  const DType dtype = GetParam();
  std::mt19937 random(7);
  constexpr int64_t sizes[] = {0, 1, 1, 2, 3, 5, 7, 8, 16, 17, 31, 33, 48, 64, 100};
  const auto size = [&] { return sizes[random() % std::size(sizes)]; };
  for (int round = 0; round < 300; ++round) {
    const int64_t m = size(), n = size(), k = size();
    Shape batch;
    for (unsigned i = random() % 4; i > 1; --i) batch.push_back(sizes[random() % 6]);
    const bool half = dtype == bf16 || dtype == f16;
    const DType out_dtype = half && random() % 2 ? f32 : dtype;
    const StridedArray a = any_layout(dtype, broadcastable(batch, m, k, random), random);
    const StridedArray b = any_layout(dtype, broadcastable(batch, k, n, random), random);
    StridedArray bias(random() % 2 ? dtype : out_dtype, {n}, {}, 0);
    bias.randomize(random);
    Shape out_shape = batch;
    out_shape.push_back(m);
    out_shape.push_back(n);
    StridedArray out = any_layout(out_dtype, out_shape, random);
    const bool with_bias = random() % 3 == 0;
    const float beta = random() % 2 ? static_cast<float>(random() % 3) : 0;
    const auto expected = plain_gemm(a, b, with_bias ? &bias : nullptr, out, beta);
    if (beta == 0 && is_floating(dtype)) out.fill(std::nan(""));
    gemm(a.block(), b.block(), out.block(), beta, with_bias ? &bias.block() : nullptr);
    EXPECT_LE(relative_difference(out.values(), expected), allowed(dtype, out_dtype, k))
        << "round " << round << ": a " << a.block().shape << a.block().strides << " b "
        << b.block().shape << b.block().strides << " out " << out.block().shape
        << out.block().strides << " beta " << beta << " bias " << with_bias;
    EXPECT_TRUE(out.gaps_untouched()) << "round " << round;
  }
}

TEST_P(Gemm, TakesTransposedOperandsAndResults) {
  const DType dtype = GetParam();
  std::mt19937 random(3);
  const std::vector<int> rows{0, 1}, columns{1, 0};
  for (int i = 0; i < 16; ++i) {
    StridedArray a(dtype, {65, 80}, i & 1 ? columns : rows),
        b(dtype, {80, 96}, i & 2 ? columns : rows);
    StridedArray out(dtype, {65, 96}, i & 4 ? columns : rows, 5), bias(dtype, {96});
    for (StridedArray* each : {&a, &b, &out, &bias}) each->randomize(random);
    const bool with_bias = i & 8;
    const auto expected = plain_gemm(a, b, with_bias ? &bias : nullptr, out, 1);
    gemm(a.block(), b.block(), out.block(), 1, with_bias ? &bias.block() : nullptr);
    EXPECT_LE(relative_difference(out.values(), expected), allowed(dtype, dtype, 80)) << i;
    EXPECT_TRUE(out.gaps_untouched()) << i;
  }
}

TEST_P(Gemm, MultipliesFewRows) {
  const DType dtype = GetParam();
  std::mt19937 random(4);
  const std::vector<int> rows{0, 1}, columns{1, 0};
  for (int64_t m = 1; m <= 9; ++m) {
    for (const int64_t k : {301, 64}) {
      StridedArray a(dtype, {m, k}, rows, 2), b(dtype, {k, 259}, columns, 3), bias(dtype, {259});
      StridedArray out(dtype, {m, 259}), flipped(dtype, {259, m});
      for (StridedArray* each : {&a, &b, &out, &bias}) each->randomize(random);
      const auto plain = plain_gemm(a, b, nullptr, out, 0),
                 expected = plain_gemm(a, b, &bias, out, 1);
      gemm(a.block(), b.block(), out.block(), 1, &bias.block());
      gemm(transposed(b.block()), transposed(a.block()), flipped.block());
      EXPECT_LE(relative_difference(out.values(), expected), allowed(dtype, dtype, k)) << m;
      const StridedArray back(dtype, {m, 259});
      gemm(a.block(), b.block(), back.block());
      EXPECT_LE(relative_difference(back.values(), plain), allowed(dtype, dtype, k)) << m;
      for (int64_t i = 0; i < m * 259; ++i) {
        EXPECT_NEAR(flipped.at(i % 259 * m + i / 259), back.at(i), 0.1) << m;
      }
    }
  }
}

TEST_P(Gemm, SumsOverLeadingDims) {
  const DType dtype = GetParam();
  const DType out_dtype = dtype == bf16 ? f32 : dtype;
  std::mt19937 random(5);
  const std::vector<std::vector<int>> orders{{0, 1, 2}, {1, 0, 2}, {2, 0, 1}, {0, 2, 1}};
  for (const Shape& leading : {Shape{3, 5}, Shape{1, 40}, Shape{20, 30}, Shape{0, 4}}) {
    for (size_t i = 0; i < orders.size() * orders.size(); ++i) {
      const auto &a_order = orders[i / orders.size()], &b_order = orders[i % orders.size()];
      StridedArray a(dtype, {leading[0], leading[1], 33}, a_order, i % 3 == 0 ? 2 : 0);
      StridedArray b(dtype, {leading[0], leading[1], 47}, b_order, i % 3 == 1 ? 2 : 0);
      StridedArray out(out_dtype, {33, 47});
      for (StridedArray* each : {&a, &b, &out}) each->randomize(random);
      auto expected = out.values();
      const auto a_values = a.values(), b_values = b.values();
      for (size_t t = 0; t < static_cast<size_t>(leading.product()); ++t) {
        for (size_t j = 0; j < expected.size(); ++j) {
          expected[j] += a_values[t * 33 + j / 47] * b_values[t * 47 + j % 47];
        }
      }
      if (dtype == u8) {
        for (double& x : expected) x = std::fmod(x, 256);
      }
      gemm_over_leading(a.block(), b.block(), out.block(), 1);
      EXPECT_LE(relative_difference(out.values(), expected), allowed(dtype, out_dtype, 600))
          << leading << " " << i;
    }
  }
}

TEST(Gemm, SumsOverAnEmptyPartOfLeadingDims) {
  StridedArray a(f32, {2, 5, 3}), b(f32, {2, 5, 4}), out(f32, {3, 4});
  for (int64_t i = 0; i < 12; ++i) out.set_at(i, 7);
  const Box none_of_a{{0, 2, 0}, {2, 0, 3}}, none_of_b{{0, 2, 0}, {2, 0, 4}};
  gemm_over_leading(a.block().part(none_of_a), b.block().part(none_of_b), out.block(), 1);
  EXPECT_EQ(out.values(), std::vector<double>(12, 7));
  gemm_over_leading(a.block().part(none_of_a), b.block().part(none_of_b), out.block());
  EXPECT_EQ(out.values(), std::vector<double>(12, 0));
}

TEST(Gemm, ReadsBroadcastOperandsByStrideZero) {
  std::mt19937 random(11);
  StridedArray a(f32, {6, 40, 50}), row(f32, {1, 1}), out(f32, {6, 40, 30});
  a.randomize(random);
  row.set_at(0, 0.5);
  MemoryBlock b = row.block();  // one number seen as [6, 50, 30]
  b.shape = {6, 50, 30};
  b.strides = {0, 0, 0};
  gemm(a.block(), b, out.block());
  const auto a_values = a.values(), values = out.values();
  for (size_t i = 0; i < values.size(); ++i) {
    double sum = 0;
    for (size_t l = 0; l < 50; ++l) sum += 0.5 * a_values[i / 30 * 50 + l];
    EXPECT_NEAR(values[i], sum, 1e-5);
  }
}

TEST(Gemm, GivesBetaTimesOutWhereNothingIsSummed) {
  StridedArray a(f32, {3, 0}), b(f32, {0, 4}), out(f32, {3, 4});
  out.fill(3);
  gemm(a.block(), b.block(), out.block(), 0.5f);
  EXPECT_EQ(out.values(), std::vector<double>(12, 1.5));
  gemm(a.block(), b.block(), out.block());
  EXPECT_EQ(out.values(), std::vector<double>(12, 0));
}

TEST(Gemm, KeepsRightWithMoreShapesThanItRemembers) {
  std::mt19937 random(13);
  for (int64_t i = 0; i < 560; ++i) {
    const int64_t n = 26 + i % 540;  // the last ones are the first ones again
    StridedArray a(f32, {26, 26}), b(f32, {26, n}), out(f32, {26, n});
    a.randomize(random);
    b.randomize(random);
    gemm(a.block(), b.block(), out.block());
    if (i % 37 != 0 && i < 540) continue;
    EXPECT_LE(relative_difference(out.values(), plain_gemm(a, b, nullptr, out, 0)), 4e-6) << n;
  }
}

/// The products of one thread, some of shapes that other threads use too.
static std::vector<double> products_of(unsigned thread, int threads) {
  ThreadLimit limit(threads);
  std::mt19937 random(thread);
  std::vector<double> all;
  for (int64_t i = 0; i < 40; ++i) {
    const int64_t m = 64 + 16 * (i % 4), n = 48 + static_cast<int64_t>(thread), k = 128 + i % 3;
    StridedArray a(f32, {2, m, k}), b(f32, {k, n}, {1, 0}), out(f32, {2, m, n});
    a.randomize(random);
    b.randomize(random);
    gemm(a.block(), b.block(), out.block());
    const auto values = out.values();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

TEST(Gemm, RunsOnManyThreadsAtOnce) {
  for (const int threads : {1, 2}) {
    std::vector<std::vector<double>> alone(4), together(4);
    for (unsigned i = 0; i < 4; ++i) alone[i] = products_of(i, threads);
    std::vector<std::thread> ranks;
    for (unsigned i = 0; i < 4; ++i) {
      ranks.emplace_back([&, i] { together[i] = products_of(i, threads); });
    }
    for (auto& rank : ranks) rank.join();
    EXPECT_EQ(alone, together) << threads;
  }
}

/// a [m, k] by b [k, n] in one of three layouts: those of x W^T, dy W and dy^T x.
static std::vector<double> product_with_threads(DType dtype, const std::array<int64_t, 3>& sizes,
                                                int layout, int threads) {
  const auto& [m, n, k] = sizes;
  const std::vector<int> turned = {1, 0};
  StridedArray a(dtype, {m, k}, layout == 2 ? turned : std::vector<int>());
  StridedArray b(dtype, {k, n}, layout == 0 ? turned : std::vector<int>()), out(f32, {m, n});
  std::mt19937 random(5);
  a.randomize(random);
  b.randomize(random);
  const ThreadLimit limit(threads);
  const FixedProducts fixed;
  gemm(a.block(), b.block(), out.block());
  return out.values();
}

TEST(Gemm, FixedProductsHaveEqualBitsForAnyNumberOfThreads) {
  const std::array<int64_t, 3> shapes[] = {{16, 32, 2048}, {64, 64, 300},   {256, 192, 64},
                                           {24, 43, 32},   {129, 700, 257}, {64, 1000, 96},
                                           {700, 40, 512}, {3, 64, 5000},   {320, 320, 1408}};
  for (const auto& sizes : shapes) {
    for (const DType dtype : {f32, bf16}) {
      for (int layout = 0; layout < 3; ++layout) {
        const std::vector<double> one = product_with_threads(dtype, sizes, layout, 1);
        for (const int threads : {2, 3, 4}) {
          EXPECT_EQ(product_with_threads(dtype, sizes, layout, threads), one)
              << dtype << ' ' << sizes[0] << ", " << sizes[1] << ", " << sizes[2] << ", layout "
              << layout << ", " << threads << " threads";
        }
      }
    }
  }
}

/// Rows [i, i + m) and columns [j, j + n) of the product of whole matrices by parts of them, or by
/// dense copies of these.
static std::vector<double> part_of_product(DType dtype, const StridedArray& a,
                                           const StridedArray& b, int layout, bool copies,
                                           const std::array<int64_t, 4>& part) {
  const auto& [i, m, j, n] = part;
  const int64_t k = a.block().shape[1];
  const std::vector<int> turned = {1, 0};
  StridedArray own_a(dtype, {m, k}, layout == 2 ? turned : std::vector<int>());
  StridedArray own_b(dtype, {k, n}, layout == 0 ? turned : std::vector<int>());
  StridedArray out(dtype, {m, n});
  const MemoryBlock of_a = a.block().part({{i, 0}, {m, k}}),
                    of_b = b.block().part({{0, j}, {k, n}});
  copy(own_a.block(), of_a);
  copy(own_b.block(), of_b);
  const FixedProducts fixed;
  gemm(copies ? own_a.block() : of_a, copies ? own_b.block() : of_b, out.block());
  return out.values();
}

TEST(Gemm, FixedProductsHaveEqualBitsForAnyCutOfTheResult) {
  if (!FixedProducts::have_equal_parts()) GTEST_SKIP() << "oneDNN has no kernels of AVX-512 here";
  const ThreadLimit limit(1);
  std::mt19937 random(7);
  for (const int64_t k : {1, 24, 43, 191, 256, 257, 700, 1408}) {
    for (const auto& [m, n] : {std::pair<int64_t, int64_t>{24, 86}, {100, 352}, {257, 129}}) {
      for (const DType dtype : {f32, bf16}) {
        for (int layout = 0; layout < 3; ++layout) {
          const std::vector<int> turned = {1, 0};
          StridedArray a(dtype, {m, k}, layout == 2 ? turned : std::vector<int>());
          StridedArray b(dtype, {k, n}, layout == 0 ? turned : std::vector<int>());
          a.randomize(random);
          b.randomize(random);
          const std::vector<double> whole =
              part_of_product(dtype, a, b, layout, false, {0, m, 0, n});
          for (const auto& part : {std::array<int64_t, 4>{0, m, 0, n / 2},
                                   {0, m, n / 2, n - n / 2},
                                   {m / 2, m - m / 2, 0, n},
                                   {1, 3, 5, 17},
                                   {2, 15, 1, 9},
                                   {7, 1, 0, n},
                                   {0, m, 3, 1}}) {
            std::vector<double> expected;
            for (int64_t i = part[0]; i < part[0] + part[1]; ++i) {
              const auto row = whole.begin() + i * n + part[2];
              expected.insert(expected.end(), row, row + part[3]);
            }
            for (const bool copies : {false, true})
              EXPECT_EQ(part_of_product(dtype, a, b, layout, copies, part), expected)
                  << dtype << ' ' << m << ", " << n << ", " << k << ", layout " << layout
                  << ", part " << part[0] << ' ' << part[1] << ' ' << part[2] << ' ' << part[3];
          }
        }
      }
    }
  }
}

#ifdef WEFT_WITH_ONEDNN
TEST(Gemm, RefusesAOneDnnThatComputesLater) {
  constexpr unsigned kOpenMp = 2, kSycl = 512;
  check_onednn_runtime(kOpenMp);
  EXPECT_EQ(error_of<std::runtime_error>([&] { check_onednn_runtime(kSycl); }),
            "oneDNN: the CPU runtime of the loaded libdnnl is SYCL, expected OpenMP; remove its "
            "folder from LD_LIBRARY_PATH");
}
#endif

TEST(Gemm, NamesWhatDisagrees) {
  const StridedArray a(f32, {4, 8}), b(f32, {6, 5}), c(f32, {4, 5}), d(f64, {8, 5}), e(f32, {8, 5});
  const StridedArray batch(f32, {3, 4, 8}), batched(f32, {2, 4, 5}), bias(f32, {4}),
      flags(boolean, {2, 2});
  EXPECT_EQ(error_of([&] { gemm(a.block(), b.block(), c.block()); }),
            "gemm: factor k is 6 in b [6, 5], expected 8, as in a [4, 8]");
  EXPECT_EQ(error_of([&] { gemm(a.block(), d.block(), c.block()); }),
            "gemm: operands are f32 and f64, expected one dtype; cast one");
  EXPECT_EQ(error_of([&] { gemm(d.block(), d.block(), c.block()); }),
            "gemm: dtype of the result is f32, expected f64");
  EXPECT_EQ(error_of([&] { gemm(e.block(), transposed(e.block()), c.block()); }),
            "gemm: out is [4, 5], expected the product of a [8, 5] by b [5, 8]");
  EXPECT_EQ(error_of([&] { gemm(batch.block(), e.block(), batched.block()); }),
            "gemm: dim 0 of a [3, 4, 8] is 3, expected one that broadcasts to [2, 4, 5]");
  EXPECT_EQ(error_of([&] { gemm(bias.block(), e.block(), c.block()); }),
            "gemm: shapes are [4] by [8, 5] into [4, 5], expected matrices");
  EXPECT_EQ(error_of([&] { gemm(a.block(), e.block(), c.block(), 0, &bias.block()); }),
            "gemm: bias is [4], expected [5]");
  EXPECT_EQ(error_of([&] { gemm(flags.block(), flags.block(), flags.block()); }),
            "gemm: dtype is bool, expected a number");
  EXPECT_EQ(error_of([&] { gemm_over_leading(a.block(), b.block(), c.block()); }),
            "gemm: out is [4, 5], expected a [4, 8] over b [6, 5] by their leading dims");
}

}  // namespace weft

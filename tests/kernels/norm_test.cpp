// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/norm/norm.h"

#include <gtest/gtest.h>

#include "src/kernels/reduce/reduce.h"
#include "tests/kernels/array.h"
#include "tests/kernels/threads.h"
#include "tests/support/scratch.h"

namespace weft {
namespace {

constexpr double kEps = 1e-5;
const Shape kShapes[] = {{7}, {5, 33}, {1, 1}, {200, 64}, {3, 5, 40}, {0, 4}};

struct Gradients {
  std::vector<double> y, dx, dweight, dbias;
};

struct NormOperands {
  Array x, dy, weight, bias;
};

NormOperands operands(DType dtype, const Shape& shape, Lie lie = Lie::dense) {
  return {Array::random(dtype, shape, lie, 1), Array::random(dtype, shape, Lie::dense, 2),
          Array::random(dtype, {shape.back()}, Lie::dense, 3),
          Array::random(dtype, {shape.back()}, Lie::dense, 4)};
}

/// A norm and its gradients in plain loops: differentiates the whole formula by the chain rule
/// through mean and variance.
Gradients plain(const NormOperands& o, bool centered) {
  const int64_t n = o.x.block.shape.back(), rows = n == 0 ? 0 : o.x.block.numel() / n;
  Gradients g{o.x.values(), o.x.values(), std::vector<double>(static_cast<size_t>(n)),
              std::vector<double>(static_cast<size_t>(n))};
  const auto count = static_cast<double>(n);
  for (int64_t r = 0; r < rows; ++r) {
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < n && centered; ++i) mean += o.x[r * n + i] / count;
    for (int64_t i = 0; i < n; ++i) variance += std::pow(o.x[r * n + i] - mean, 2) / count;
    const double rstd = 1 / std::sqrt(variance + kEps);
    double dvariance = 0, dmean = 0;
    for (int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<size_t>(r * n + i);
      const double d = o.x[r * n + i] - mean, dxhat = o.dy[r * n + i] * o.weight[i];
      g.y[at] = d * rstd * o.weight[i] + (centered ? o.bias[i] : 0);
      g.dweight[static_cast<size_t>(i)] += o.dy[r * n + i] * d * rstd;
      g.dbias[static_cast<size_t>(i)] += o.dy[r * n + i];
      dvariance += dxhat * d * -0.5 * std::pow(rstd, 3);
      dmean += centered ? -dxhat * rstd : 0;
    }
    for (int64_t i = 0; i < n; ++i) {
      const double d = o.x[r * n + i] - mean, dxhat = o.dy[r * n + i] * o.weight[i];
      g.dx[static_cast<size_t>(r * n + i)] =
          dxhat * rstd + dvariance * 2 * d / count + dmean / count;
    }
  }
  return g;
}

TEST(Norm, RmsEqualsPlainLoops) {
  for (const Shape& shape : kShapes) {
    for (DType dtype : {f32, bf16, f64}) {
      for (Lie lie : kLies) {
        const NormOperands o = operands(dtype, shape, lie);
        const Gradients expected = plain(o, false);
        const Array y(dtype, shape, lie), dx(dtype, shape), dw(dtype, {shape.back()});
        normalize({false, kEps}, y.block, o.x.block, o.weight.block);
        norm_backward({false, kEps}, dx.block, dw.block, nullptr, o.dy.block, o.x.block,
                      o.weight.block);
        expect_near(y.values(), expected.y, rounding(dtype));
        // In a row of one element everything but rounding errors cancels.
        if (shape.back() > 1) expect_near(dx.values(), expected.dx, 4 * rounding(dtype));
        expect_near(dw.values(), expected.dweight, 4 * rounding(dtype));
      }
    }
  }
}

TEST(Norm, LayerEqualsPlainLoops) {
  for (const Shape& shape : kShapes) {
    for (DType dtype : {f32, f64}) {
      const NormOperands o = operands(dtype, shape, Lie::gaps);
      const Gradients expected = plain(o, true);
      const Shape row{shape.back()};
      const Array y(dtype, shape), dx(dtype, shape), dw(dtype, row), db(dtype, row);
      normalize({true, kEps}, y.block, o.x.block, o.weight.block, o.bias.block);
      norm_backward({true, kEps}, dx.block, dw.block, &db.block, o.dy.block, o.x.block,
                    o.weight.block);
      // A row of one element has no variance: 1 / sqrt(eps) magnifies its rounding.
      const double bound = (shape.back() == 1 ? 1000 : 8) * rounding(dtype);
      expect_near(y.values(), expected.y, bound);
      if (shape.back() > 1) expect_near(dx.values(), expected.dx, bound);
      expect_near(dw.values(), expected.dweight, bound);
      expect_near(db.values(), expected.dbias, bound);
    }
  }
}

void expect_without_weight_and_in_place(DType dtype, double bound) {
  const NormOperands o = operands(dtype, {9, 40});
  NormOperands ones = operands(dtype, {9, 40});
  ones.weight.set(std::vector<double>(40, 1));
  const Gradients expected = plain(ones, false), weighted = plain(o, false);
  const Array dw = Array::random(dtype, {40}, Lie::dense, 9), dx(dtype, {9, 40});
  std::vector<double> sums = dw.values();
  for (size_t i = 0; i < 40; ++i) sums[i] += weighted.dweight[i];
  norm_backward({false, kEps}, dx.block, dw.block, nullptr, o.dy.block, o.x.block, o.weight.block,
                true);
  expect_near(dw.values(), sums, bound);
  norm_backward({false, kEps}, dx.block, dw.block, nullptr, o.dy.block, o.x.block, {});
  expect_near(dx.values(), expected.dx, bound);
  norm_backward({false, kEps}, o.dy.block, dw.block, nullptr, o.dy.block, o.x.block, {});
  expect_near(o.dy.values(), expected.dx, bound);
  normalize({false, kEps}, o.x.block, o.x.block, {});
  expect_near(o.x.values(), expected.y, bound);
}

TEST(Norm, WithoutWeightAndInPlaceAndAccumulating) {
  expect_without_weight_and_in_place(f32, 1e-5);
  // Rows of bf16 are read where they are.
  expect_without_weight_and_in_place(bf16, 0.05);
}

MemoryBlock slice(const Array& array, int64_t begin, int64_t end) {
  return array.block.part({{begin}, {end - begin}});
}

constexpr int64_t kCuts[] = {0, 5, 5, 31, 40};  // uneven, and one rank holds nothing

/// sums = total over ranks of the values that `part` writes for each rank's columns.
template <class Part> void add_parts(const Array& sums, const Part& part) {
  const int64_t rows = sums.block.shape[0];
  std::vector<double> total(static_cast<size_t>(rows));
  for (int i = 0; i < 4; ++i) {
    const Array mine(f32, {rows});
    part(mine.block, kCuts[i], kCuts[i + 1]);
    for (int64_t r = 0; r < rows; ++r) total[static_cast<size_t>(r)] += mine[r];
  }
  for (int64_t r = 0; r < rows; ++r)
    sums.block.as<float>()[r] = static_cast<float>(total[static_cast<size_t>(r)]);
}

TEST(Norm, RowsOfRmsCutOverRanksGiveTheSame) {
  const NormOperands o = operands(f32, {6, 40});
  const Gradients expected = plain(o, false);
  const Array squares(f32, {6}), dot(f32, {6}), y(f32, {6, 40}), dx(f32, {6, 40}), dw(f32, {40});
  add_parts(squares, [&](const MemoryBlock& out, int64_t begin, int64_t end) {
    reduce(Reduction::sum_squares, out, columns(o.x, begin, end), {1});
  });
  add_parts(dot, [&](const MemoryBlock& out, int64_t begin, int64_t end) {
    norm_sums({false, kEps}, {}, out, columns(o.dy, begin, end), columns(o.x, begin, end),
              slice(o.weight, begin, end));
  });
  const Norm cut{false, kEps, 40, {squares.block, dot.block, {}, {}}};
  for (int i = 0; i < 4; ++i) {
    const int64_t begin = kCuts[i], end = kCuts[i + 1];
    const MemoryBlock x = columns(o.x, begin, end), weight = slice(o.weight, begin, end);
    const MemoryBlock to = columns(dx, begin, end), to_weight = slice(dw, begin, end);
    normalize(cut, columns(y, begin, end), x, weight);
    norm_backward(cut, to, to_weight, nullptr, columns(o.dy, begin, end), x, weight);
  }
  expect_near(y.values(), expected.y, 1e-5);
  expect_near(dx.values(), expected.dx, 1e-5);
  expect_near(dw.values(), expected.dweight, 1e-5);
}

TEST(Norm, RowsOfLayerCutOverRanksGiveTheSame) {
  const NormOperands o = operands(f32, {6, 40});
  const Gradients expected = plain(o, true);
  const Array sum(f32, {6}), squares(f32, {6}), gradient(f32, {6}), dot(f32, {6});
  const Norm cut{true, kEps, 40, {sum.block, squares.block, gradient.block, dot.block}};
  add_parts(sum, [&](const MemoryBlock& out, int64_t begin, int64_t end) {
    reduce(Reduction::sum, out, columns(o.x, begin, end), {1});
  });
  add_parts(squares, [&](const MemoryBlock& out, int64_t begin, int64_t end) {
    centered_squares(cut, out, columns(o.x, begin, end));
  });
  const auto sums = [&](const MemoryBlock& first, const MemoryBlock& second, int64_t begin,
                        int64_t end) {
    norm_sums(cut, first, second, columns(o.dy, begin, end), columns(o.x, begin, end),
              slice(o.weight, begin, end));
  };
  const Array unused(f32, {6});
  add_parts(gradient,
            [&](const MemoryBlock& out, int64_t b, int64_t e) { sums(out, unused.block, b, e); });
  add_parts(dot,
            [&](const MemoryBlock& out, int64_t b, int64_t e) { sums(unused.block, out, b, e); });
  const Array y(f32, {6, 40}), dx(f32, {6, 40}), dw(f32, {40}), db(f32, {40});
  for (int i = 0; i < 4; ++i) {
    const int64_t b = kCuts[i], e = kCuts[i + 1];
    const MemoryBlock to = columns(dx, b, e), to_weight = slice(dw, b, e),
                      to_bias = slice(db, b, e);
    normalize(cut, columns(y, b, e), columns(o.x, b, e), slice(o.weight, b, e),
              slice(o.bias, b, e));
    norm_backward(cut, to, to_weight, &to_bias, columns(o.dy, b, e), columns(o.x, b, e),
                  slice(o.weight, b, e));
  }
  expect_near(y.values(), expected.y, 1e-5);
  expect_near(dx.values(), expected.dx, 1e-5);
  expect_near(dw.values(), expected.dweight, 1e-5);
  expect_near(db.values(), expected.dbias, 1e-5);
}

TEST(Norm, BitsDoNotDependOnTheNumberOfThreads) {
  const NormOperands o = operands(f32, {3000, 64});
  expect_bits_for_any_threads([&] {
    const Array dw(f32, {64}), dx(f32, {3000, 64});
    norm_backward({false, kEps}, dx.block, dw.block, nullptr, o.dy.block, o.x.block,
                  o.weight.block);
    return dw.values();
  });
}

TEST(Norm, RefusesAWeightOfAnotherSize) {
  const Array x(f32, {2, 3}), weight(f32, {4}), ids(i32, {2, 3});
  EXPECT_EQ(error_of([&] {
              normalize({false, kEps}, x.block, x.block, weight.block);
            }),
            "norm: weight is [4], expected [3]");
  EXPECT_THROW(normalize({false, kEps}, ids.block, ids.block, {}), std::invalid_argument);
}

}  // namespace
}  // namespace weft

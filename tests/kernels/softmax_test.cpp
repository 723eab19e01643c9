// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/softmax/softmax.h"

#include <gtest/gtest.h>

#include <limits>

#include "src/kernels/copy/copy.h"
#include "src/kernels/reduce/reduce.h"
#include "tests/kernels/array.h"

namespace weft {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const Shape kShapes[] = {{7}, {1, 1}, {5, 33}, {4, 1000}, {3, 5, 40}, {0, 4}};

Shape without(Shape shape, int dim) {
  shape.erase(dim);
  return shape;
}

struct Softmaxed {
  std::vector<double> y, log_y, lse;
};

/// Index of element i of row r, along the last dim or the first of two.
struct RowsOf {
  int64_t rows, n, step;
  RowsOf(const Shape& shape, int dim) : n(shape[dim]), step(1) {
    for (int d = dim + 1; d < shape.ndim(); ++d) step *= shape[d];
    rows = without(shape, dim).product();
  }
  int64_t at(int64_t r, int64_t i) const { return (r / step * n + i) * step + r % step; }
};

Softmaxed plain(const Array& x, int dim) {
  const RowsOf rows(x.block.shape, dim);
  Softmaxed result{x.values(), x.values(), {}};
  for (int64_t r = 0; r < rows.rows; ++r) {
    double max = -kInfinity, sum = 0;
    for (int64_t i = 0; i < rows.n; ++i) max = std::max(max, x[rows.at(r, i)]);
    for (int64_t i = 0; i < rows.n; ++i) sum += std::exp(x[rows.at(r, i)] - max);
    for (int64_t i = 0; i < rows.n; ++i) {
      const auto at = static_cast<size_t>(rows.at(r, i));
      result.log_y[at] = x[rows.at(r, i)] - max - std::log(sum);
      result.y[at] = std::exp(result.log_y[at]);
    }
    result.lse.push_back(max + std::log(sum));
  }
  return result;
}

TEST(Softmax, EqualsPlainLoopsAlongAnyDim) {
  for (const Shape& shape : kShapes) {
    for (int dim = 0; dim < shape.ndim(); ++dim) {
      for (DType dtype : {f32, bf16, f64}) {
        for (Lie lie : kLies) {
          const Array x = Array::random(dtype, shape, lie, 1, -20, 20);
          const Array y(dtype, shape), log_y(dtype, shape, lie), lse(dtype, without(shape, dim));
          softmax(y.block, x.block, dim);
          softmax(log_y.block, x.block, dim, true);
          logsumexp(lse.block, x.block, dim);
          const Softmaxed expected = plain(x, dim);
          expect_near(y.values(), expected.y, rounding(dtype));
          expect_near(log_y.values(), expected.log_y, rounding(dtype));
          expect_near(lse.values(), expected.lse, rounding(dtype));
          softmax(x.block, x.block, dim);
          expect_near(x.values(), expected.y, rounding(dtype));
        }
      }
    }
  }
}

TEST(Softmax, GradientsEqualPlainLoops) {
  for (const Shape& shape : kShapes) {
    for (int dim = 0; dim < shape.ndim(); ++dim) {
      for (DType dtype : {f32, f64}) {
        const Array x = Array::random(dtype, shape), dy = Array::random(dtype, shape, Lie::gaps, 2);
        const Softmaxed forward = plain(x, dim);
        const Array y = Array::of(dtype, shape, forward.y),
                    log_y = Array::of(dtype, shape, forward.log_y);
        const Array lse = Array::of(dtype, without(shape, dim), forward.lse);
        const Array dlse = Array::random(dtype, without(shape, dim), Lie::dense, 3);
        std::vector<double> dx = x.values(), dx_log = dx, dx_lse = dx;
        const RowsOf rows(shape, dim);
        for (int64_t r = 0; r < rows.rows; ++r) {
          double dot = 0, sum = 0;
          for (int64_t i = 0; i < rows.n; ++i) {
            dot += dy[rows.at(r, i)] * y[rows.at(r, i)];
            sum += dy[rows.at(r, i)];
          }
          for (int64_t i = 0; i < rows.n; ++i) {
            const int64_t at = rows.at(r, i);
            dx[static_cast<size_t>(at)] = y[at] * (dy[at] - dot);
            dx_log[static_cast<size_t>(at)] = dy[at] - y[at] * sum;
            dx_lse[static_cast<size_t>(at)] = dlse[r] * y[at];
          }
        }
        const Array out(dtype, shape, Lie::transposed);
        softmax_backward(out.block, dy.block, y.block, dim);
        expect_near(out.values(), dx, rounding(dtype));
        softmax_backward(out.block, dy.block, log_y.block, dim, true);
        expect_near(out.values(), dx_log, rounding(dtype));
        logsumexp_backward(out.block, dlse.block, x.block, lse.block, dim);
        expect_near(out.values(), dx_lse, rounding(dtype));
      }
    }
  }
}

/// Statistics of parts of rows, reduced as over ranks.
template <class Part>
Array reduced(Reduction reduction, int64_t rows, const std::vector<int64_t>& cuts,
              const Part& part) {
  const auto ranks = static_cast<int64_t>(cuts.size()) - 1;
  const Array parts(f32, {ranks, rows}), result(f32, {rows});
  for (int64_t i = 0; i < ranks; ++i) {
    part(parts.block.part({{i, 0}, {1, rows}}), cuts[static_cast<size_t>(i)],
         cuts[static_cast<size_t>(i + 1)]);
  }
  reduce(reduction, result.block, parts.block, {0});
  return result;
}

/// Views a block [1, rows] as [rows].
MemoryBlock flat(MemoryBlock block) {
  block.shape.erase(0);
  block.strides.erase(0);
  return block;
}

TEST(Softmax, RowsCutOverRanksGiveTheSame) {
  const Array x = Array::random(f32, {6, 100}), dy = Array::random(f32, {6, 100}, Lie::dense, 2);
  const std::vector<int64_t> cuts = {0, 34, 34, 68, 100};  // one rank holds nothing
  const Array max =
      reduced(Reduction::max, 6, cuts, [&](MemoryBlock out, int64_t begin, int64_t end) {
        reduce(Reduction::max, flat(out), columns(x, begin, end), {1});
      });
  const Array sum =
      reduced(Reduction::sum, 6, cuts, [&](MemoryBlock out, int64_t begin, int64_t end) {
        row_sum_exp(flat(out), columns(x, begin, end), 1, max.block);
      });
  const Array y(f32, {6, 100}), log_y(f32, {6, 100}), lse(f32, {6}), dx(f32, {6, 100}),
      dlog(f32, {6, 100});
  const auto each = [&](const auto& f) {
    for (size_t i = 0; i + 1 < cuts.size(); ++i) f(cuts[i], cuts[i + 1]);
  };
  each([&](int64_t begin, int64_t end) {
    softmax(columns(y, begin, end), columns(x, begin, end), 1, false, &max.block, &sum.block);
    softmax(columns(log_y, begin, end), columns(x, begin, end), 1, true, &max.block, &sum.block);
  });
  logsumexp(lse.block, max.block, sum.block);
  const Softmaxed expected = plain(x, 1);
  expect_near(y.values(), expected.y, rounding(f32));
  expect_near(log_y.values(), expected.log_y, rounding(f32));
  expect_near(lse.values(), expected.lse, rounding(f32));

  const Array dot =
      reduced(Reduction::sum, 6, cuts, [&](MemoryBlock out, int64_t begin, int64_t end) {
        row_dot(flat(out), columns(dy, begin, end), columns(y, begin, end), 1);
      });
  const Array total =
      reduced(Reduction::sum, 6, cuts, [&](MemoryBlock out, int64_t begin, int64_t end) {
        reduce(Reduction::sum, flat(out), columns(dy, begin, end), {1});
      });
  each([&](int64_t begin, int64_t end) {
    softmax_backward(columns(dx, begin, end), columns(dy, begin, end), columns(y, begin, end), 1,
                     false, &dot.block);
    softmax_backward(columns(dlog, begin, end), columns(dy, begin, end), columns(log_y, begin, end),
                     1, true, &total.block);
  });
  const Array whole(f32, {6, 100});
  softmax_backward(whole.block, dy.block, y.block, 1);
  expect_near(dx.values(), whole.values(), 1e-6);
  softmax_backward(whole.block, dy.block, log_y.block, 1, true);
  expect_near(dlog.values(), whole.values(), 1e-6);
}

TEST(Softmax, InfiniteLogitsAreMasks) {
  const Array x = Array::of(f32, {2, 3}, {-kInfinity, 1, 1, -kInfinity, -kInfinity, -kInfinity});
  const Array y(f32, {2, 3}), lse(f32, {2});
  softmax(y.block, x.block, 1);
  EXPECT_EQ(y[0], 0);
  EXPECT_FLOAT_EQ(static_cast<float>(y[1]), 0.5f);
  EXPECT_TRUE(std::isnan(y[4]));
  logsumexp(lse.block, x.block, 1);
  EXPECT_NEAR(lse[0], 1 + std::log(2.0), 1e-6);
  EXPECT_EQ(lse[1], -kInfinity);
  const Array high = Array::of(f32, {1, 2}, {kInfinity, 3}), one(f32, {1});
  logsumexp(one.block, high.block, 1);
  EXPECT_EQ(one[0], kInfinity);
}

TEST(Softmax, LogarithmsOfLargeLogitsKeepTheirDigits) {
  for (const double offset : {0.0, 16384.0, 1e6}) {
    const Array x(f32, {1, 2}), y(f32, {1, 2});
    x.block.as<float>()[0] = static_cast<float>(offset);
    x.block.as<float>()[1] = static_cast<float>(offset + 1);
    softmax(y.block, x.block, 1, true);
    EXPECT_NEAR(y[0], -1.3132617, 1e-6) << offset;
    EXPECT_NEAR(y[1], -0.3132617, 1e-6) << offset;
  }
}

TEST(Softmax, RefusesIntegersAndOtherShapes) {
  const Array ids(i32, {2, 3}), x(f32, {2, 3}), y(f32, {3, 3}), lse(f32, {5});
  EXPECT_THROW(softmax(ids.block, ids.block, 1), std::invalid_argument);
  EXPECT_THROW(softmax(y.block, x.block, 1), std::invalid_argument);
  EXPECT_THROW(logsumexp(lse.block, x.block, 1), std::invalid_argument);
}

}  // namespace
}  // namespace weft

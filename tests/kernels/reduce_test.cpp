// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/reduce/reduce.h"

#include <gtest/gtest.h>

#include <limits>

#include "src/kernels/copy/copy.h"
#include "tests/kernels/array.h"
#include "tests/kernels/threads.h"

namespace weft {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double start_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::product:
    case Reduction::all: return 1;
    case Reduction::max: return -kInfinity;
    case Reduction::min: return kInfinity;
    default: return 0;
  }
}

double combined(Reduction reduction, double sum, double x) {
  switch (reduction) {
    case Reduction::sum: return sum + x;
    case Reduction::product: return sum * x;
    case Reduction::max: return std::max(sum, x);
    case Reduction::min: return std::min(sum, x);
    case Reduction::sum_squares: return sum + x * x;
    case Reduction::any: return sum != 0 || x != 0;
    default: return sum != 0 && x != 0;
  }
}

/// The index of the result that element i of `shape` belongs to.
int64_t result_index(const Shape& shape, const Dims& dims, int64_t i) {
  int64_t index = 0, stride = 1;
  for (int d = shape.ndim() - 1; d >= 0; --d) {
    const int64_t at = i % shape[d];
    i /= shape[d];
    bool reduced = false;
    for (int64_t dim : dims) reduced |= dim == d;
    if (reduced) continue;
    index += at * stride;
    stride *= shape[d];
  }
  return index;
}

Shape result_shape(const Shape& shape, const Dims& dims, bool keep) {
  Shape result;
  for (int d = 0; d < shape.ndim(); ++d) {
    bool reduced = false;
    for (int64_t dim : dims) reduced |= dim == d;
    if (!reduced || keep) result.push_back(reduced ? 1 : shape[d]);
  }
  return result;
}

std::vector<double> plain(Reduction reduction, const Array& in, const Dims& dims) {
  const auto count = result_shape(in.block.shape, dims, false).product();
  std::vector<double> result(static_cast<size_t>(count), start_of(reduction));
  for (int64_t i = 0; i < in.block.numel(); ++i) {
    double& value = result[static_cast<size_t>(result_index(in.block.shape, dims, i))];
    value = combined(reduction, value, in[i]);
  }
  return result;
}

struct Case {
  Shape shape;
  Dims dims;
};

const Case kCases[] = {
    {{}, {}},
    {{5}, {0}},
    {{1}, {0}},
    {{1000}, {0}},
    {{7, 33}, {1}},
    {{7, 33}, {0}},
    {{33, 2000}, {0}},
    {{2000, 3}, {0}},
    {{3, 2000}, {1}},
    {{5, 7, 3}, {0, 2}},
    {{5, 7, 3}, {1}},
    {{5, 7, 3}, {2, 0}},
    {{2, 3, 4, 5}, {1, 2}},
    {{4, 1, 6}, {1}},
    {{4, 6}, {}},
    {{0, 4}, {0}},
    {{4, 0}, {0}},
    {{3, 1, 70}, {0, 1, 2}},
};

TEST(Reduce, EqualsPlainLoops) {
  for (Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min,
                              Reduction::sum_squares, Reduction::any, Reduction::all}) {
    for (const Case& c : kCases) {
      for (DType dtype : {f32, bf16, f64, i32, u8}) {
        for (Lie lie : kLies) {
          const bool counts = reduction == Reduction::any || reduction == Reduction::all;
          const Array in = Array::random(dtype, c.shape, lie, 3, counts ? 0 : -4, counts ? 1.2 : 4);
          if (in.block.numel() == 0 && !is_floating(dtype)) continue;
          if (dtype == u8 && !counts) continue;
          for (bool keep : {false, true}) {
            const Array out(is_floating(dtype) ? f64 : i64, result_shape(c.shape, c.dims, keep));
            reduce(reduction, out.block, in.block, c.dims);
            SCOPED_TRACE(testing::Message()
                         << static_cast<int>(reduction) << c.shape << c.dims << dtype);
            expect_near(out.values(), plain(reduction, in, c.dims),
                        dtype == bf16 ? 1e-6 : rounding(dtype));
          }
        }
      }
    }
  }
}

TEST(Reduce, ManyToFewInParts) {
  for (const Case& c : {Case{{300000}, {0}}, Case{{3, 100000}, {1}}, Case{{40000, 5}, {0}},
                        Case{{20000, 12}, {0}}, Case{{200, 2, 700}, {0, 2}}}) {
    const Array in = Array::random(f32, c.shape);
    const Array out(f32, result_shape(c.shape, c.dims, false));
    reduce(Reduction::sum, out.block, in.block, c.dims);
    double magnitude = 0;
    for (double x : in.values()) magnitude += std::fabs(x);
    const std::vector<double> expected = plain(Reduction::sum, in, c.dims);
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(out[static_cast<int64_t>(i)], expected[i], magnitude * 1e-8) << c.shape;
    }
  }
}

TEST(Reduce, MultipliesAndScalesAndAdds) {
  const Array in = Array::of(f32, {2, 3}, {1, 2, 3, 4, 5, 6});
  const Array out = Array::of(f32, {2}, {10, 20});
  reduce(Reduction::sum, out.block, in.block, {1}, 1.0 / 3, true);
  EXPECT_EQ(out.values(), (std::vector<double>{12, 25}));
  reduce(Reduction::product, out.block, in.block, {1});
  EXPECT_EQ(out.values(), (std::vector<double>{6, 120}));
}

TEST(Reduce, NothingGivesWhatEmptyShardsNeed) {
  const Array none(i32, {2, 0}), flags(boolean, {2, 0});
  const Array out(i32, {2}), flag(boolean, {2});
  reduce(Reduction::max, out.block, none.block, {1});
  EXPECT_EQ(out[1], -0x1p31);
  reduce(Reduction::min, out.block, none.block, {1});
  EXPECT_EQ(out[0], 0x1p31 - 1);
  reduce(Reduction::sum, out.block, none.block, {1});
  EXPECT_EQ(out[0], 0);
  reduce(Reduction::all, flag.block, flags.block, {1});
  EXPECT_EQ(flag[0], 1);
  reduce(Reduction::any, flag.block, flags.block, {1});
  EXPECT_EQ(flag[0], 0);
}

TEST(Reduce, NaNPassesThroughMaxAndMin) {
  for (int64_t at : {0, 1, 40, 99}) {
    const Array in = Array::random(f32, {100});
    in.block.as<float>()[at] = std::nanf("");
    for (Reduction reduction : {Reduction::max, Reduction::min, Reduction::sum}) {
      const Array out(f32, {});
      reduce(reduction, out.block, in.block, {0});
      EXPECT_TRUE(std::isnan(out[0])) << at;
    }
  }
}

TEST(Reduce, BitsDoNotDependOnTheNumberOfThreads) {
  for (const Case& c : {Case{{500000}, {0}}, Case{{3000, 90}, {0}}, Case{{90, 3000}, {1}}}) {
    const Array in = Array::random(f32, c.shape);
    expect_bits_for_any_threads([&] {
      const Array out(f32, result_shape(c.shape, c.dims, false));
      reduce(Reduction::sum, out.block, in.block, c.dims);
      return out.values();
    });
  }
}

/// Adds a number that is not a float: each addition rounds, for long stretches in one direction.
TEST(Reduce, SumsOfMillionsKeepTheirDigits) {
  struct LongCase {
    Shape shape;
    Dims dims;
    int64_t reduced;
  };
  const LongCase cases[] = {{{int64_t{1} << 23}, {0}, int64_t{1} << 23},
                            {{40, 1 << 18}, {1}, 1 << 18},
                            {{1 << 18, 40}, {0}, 1 << 18}};
  for (const LongCase& c : cases) {
    for (const DType dtype : {f32, bf16}) {
      const Array in(dtype, c.shape), out(f32, c.shape.ndim() == 1 ? Shape{} : Shape{40});
      fill(in.block, 0.1);
      reduce(Reduction::sum, out.block, in.block, c.dims);
      const double expected = in[0] * static_cast<double>(c.reduced);
      for (double sum : out.values()) EXPECT_NEAR(sum / expected, 1, 3e-6) << c.shape;
    }
  }
}

TEST(Reduce, FindsTheIndexOfTheGreatest) {
  for (Lie lie : kLies) {
    for (int dim : {0, 1}) {
      const Array in = Array::random(f32, {70, 90}, lie);
      const int64_t n = in.block.shape[dim], rows = 6300 / n;
      const Array greatest(i64, {rows}), least(i32, {rows}), found(i64, {rows}), value(f32, {rows});
      arg_reduce(greatest.block, in.block, dim, true);
      arg_reduce(least.block, in.block, dim, false);
      reduce(Reduction::max, value.block, in.block, {dim});
      index_of(found.block, in.block, value.block, dim, 1000);
      for (int64_t r = 0; r < rows; ++r) {
        int64_t high = 0, low = 0;
        const auto at = [&](int64_t i) { return in[dim == 0 ? i * 90 + r : r * 90 + i]; };
        for (int64_t i = 1; i < n; ++i) {
          if (at(i) > at(high)) high = i;
          if (at(i) < at(low)) low = i;
        }
        ASSERT_EQ(greatest[r], high);
        ASSERT_EQ(found[r], high + 1000);
        ASSERT_EQ(least[r], low);
      }
    }
  }
}

TEST(Reduce, IndicesOfTiesNaNsAndNothing) {
  const Array ties = Array::of(i32, {6}, {1, 5, 2, 5, 1, 1}), index(i64, {});
  arg_reduce(index.block, ties.block, 0, true);
  EXPECT_EQ(index[0], 1);
  arg_reduce(index.block, ties.block, 0, false);
  EXPECT_EQ(index[0], 0);
  const Array nan = Array::of(f32, {3}, {1, std::nan(""), 9});
  arg_reduce(index.block, nan.block, 0, true);
  EXPECT_EQ(index[0], 1);
  const Array none(f32, {0});
  arg_reduce(index.block, none.block, 0, true);
  EXPECT_EQ(index[0], -1);
  const Array absent = Array::of(f32, {}, {77});
  index_of(index.block, nan.block, absent.block, 0);
  EXPECT_EQ(*index.block.as<int64_t>(), std::numeric_limits<int64_t>::max());
  EXPECT_THROW(arg_reduce(absent.block, nan.block, 0, true), std::invalid_argument);
}

TEST(Reduce, RefusesWhatDoesNotFit) {
  const Array in(f32, {2, 3}), out(f32, {3});
  EXPECT_THROW(reduce(Reduction::sum, out.block, in.block, {1}), std::invalid_argument);
  EXPECT_THROW(reduce(Reduction::sum, out.block, in.block, {0, 1}), std::invalid_argument);
}

}  // namespace
}  // namespace weft

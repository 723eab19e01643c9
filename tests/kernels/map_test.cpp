// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/map/map.h"

#include <gtest/gtest.h>

#include <cmath>
#include <concepts>

#include "src/kernels/math/math.h"
#include "src/kernels/math/rests.h"
#include "tests/kernels/array.h"

namespace weft {
namespace {

struct Sum2 {
  template <class T> T operator()(T a, T b) const { return a + b; }
};

struct Less {
  template <class T> bool operator()(T a, T b) const { return a < b; }
};

struct Select {
  template <class T> T operator()(T condition, T a, T b) const { return condition != T(0) ? a : b; }
};

struct Exponential {
  template <class T> T operator()(T a) const { return exp(a); }
};

struct SumAndProduct {
  template <class T> Pair<T> operator()(T a, T b, T c, T d) const {
    return {a + b + c + d, a * b * c * d};
  }
};

constexpr DType kAll[] = {f32, bf16, f16, f64, DType::i8, DType::i16, i32, i64, u8, DType::u16};

std::vector<double> plain_sum(const Array& a, const Array& b) {
  std::vector<double> sum = a.values();
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += b[static_cast<int64_t>(i)];
  return sum;
}

TEST(Map, AddsAnyDtypeInAnyOrder) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{7}, Shape{5, 7, 3}, Shape{3, 1, 40},
                             Shape{0, 4}, Shape{33, 300}, Shape{2, 3, 5, 7, 2}, Shape{70, 1100}}) {
    for (DType dtype : kAll) {
      for (Lie left : kLies) {
        for (Lie result : kLies) {
          const Array a = Array::random(dtype, shape, left, 1, 0, 50);
          const Array b = Array::random(dtype, shape, Lie::dense, 2, 0, 50);
          const Array out(dtype, shape, result);
          map(Sum2{}, out.block, a.block, b.block);
          expect_near(out.values(), plain_sum(a, b), rounding(dtype));
        }
      }
    }
  }
}

TEST(Map, BroadcastsFromTheRight) {
  const Array a = Array::random(f32, {6, 5, 300});
  for (const Shape& shape :
       {Shape{300}, Shape{5, 1}, Shape{6, 1, 1}, Shape{1, 5, 300}, Shape{}, Shape{1}}) {
    const Array b = Array::random(f32, shape, Lie::dense, 2);
    const Array out(f32, {6, 5, 300});
    map(Sum2{}, out.block, a.block, b.block);
    for (int64_t i = 0; i < 6 * 5 * 300; ++i) {
      const int64_t index[] = {i / 1500, i / 300 % 5, i % 300};
      int64_t j = 0;
      for (int d = 0; d < shape.ndim(); ++d) {
        j = j * shape[d] + (shape[d] == 1 ? 0 : index[3 - shape.ndim() + d]);
      }
      ASSERT_FLOAT_EQ(static_cast<float>(out[i]), static_cast<float>(a[i] + b[j]))
          << shape << " " << i;
    }
  }
}

TEST(Map, ComputesInTheWidestDtypeAndConverts) {
  const Array a = Array::of(i32, {3}, {1, 2, 3}), b = Array::of(bf16, {3}, {0.5, 0.25, -4});
  const Array out(f64, {3}), rounded(i64, {3});
  map(Sum2{}, out.block, a.block, b.block);
  map(Sum2{}, rounded.block, a.block, b.block);
  EXPECT_EQ(out.values(), (std::vector<double>{1.5, 2.25, -1}));
  EXPECT_EQ(rounded.values(), (std::vector<double>{1, 2, -1}));
}

TEST(Map, IntegersWrapLikeTheirDtype) {
  const Array a = Array::of(u8, {2}, {250, 3}), b = Array::of(u8, {2}, {10, 4});
  map(Sum2{}, a.block, a.block, b.block);
  EXPECT_EQ(a.values(), (std::vector<double>{4, 7}));
  const Array big = Array::of(i64, {1}, {0x1p53}), one = Array::of(i64, {1}, {1});
  map(Sum2{}, big.block, big.block, one.block);
  EXPECT_EQ(*big.block.as<int64_t>(), (int64_t{1} << 53) + 1);
}

TEST(Map, GivesBoolAndTakesIt) {
  const Array a = Array::random(f32, {9, 31}), b = Array::random(f32, {9, 31}, Lie::transposed, 2);
  for (DType dtype : {boolean, u8, f32}) {
    const Array less(dtype, {9, 31}), least(f32, {9, 31});
    map(Less{}, less.block, a.block, b.block);
    map(Select{}, least.block, less.block, a.block, b.block);
    for (int64_t i = 0; i < 9 * 31; ++i) {
      ASSERT_EQ(less[i], a[i] < b[i] ? 1 : 0);
      ASSERT_EQ(least[i], std::min(a[i], b[i]));
    }
  }
}

TEST(Map, WorksInPlace) {
  for (Lie lie : kLies) {
    const Array a = Array::random(bf16, {40, 70}, lie);
    std::vector<double> expected = a.values();
    for (double& x : expected) x += x;
    map(Sum2{}, a.block, a.block, a.block);
    expect_near(a.values(), expected, rounding(bf16));
  }
}

TEST(Map, WritesPairs) {
  std::vector<Array> in;
  for (unsigned i = 0; i < 4; ++i) in.push_back(Array::random(f32, {11, 13}, kLies[i % 3], i));
  const Array sum(f32, {11, 13}, Lie::transposed), product(f32, {11, 13}, Lie::gaps);
  map_pair(SumAndProduct{}, sum.block, product.block, in[0].block, in[1].block, in[2].block,
           in[3].block);
  for (int64_t i = 0; i < 11 * 13; ++i) {
    ASSERT_NEAR(sum[i], in[0][i] + in[1][i] + in[2][i] + in[3][i], 1e-5);
    ASSERT_NEAR(product[i], in[0][i] * in[1][i] * in[2][i] * in[3][i], 1e-4);
  }
}

TEST(Map, ReadsOneElementOfAnOperandForALine) {
  for (const DType dtype : {f32, i64, bf16}) {
    for (const int64_t rows : {1, 40}) {
      const Shape shape{rows, 20000};
      const Array a = Array::random(dtype, shape, Lie::dense, 1, 0, 50);
      for (const Lie lie : {Lie::dense, Lie::gaps}) {
        const Array b = Array::random(dtype, {rows, 1}, lie, 2, 0, 50), out(dtype, shape);
        const Array less(boolean, shape), greater(boolean, shape), chosen(dtype, shape);
        map(Sum2{}, out.block, b.block, a.block);
        map(Less{}, less.block, a.block, b.block);
        map(Less{}, greater.block, b.block, a.block);
        map(Select{}, chosen.block, a.block, b.block, a.block);
        for (int64_t i = 0; i < shape.product(); i += 37) {
          const double one = b[i / shape[1]];
          ASSERT_NEAR(out[i], a[i] + one, rounding(dtype) * 100);
          ASSERT_EQ(less[i], a[i] < one);
          ASSERT_EQ(greater[i], one < a[i]);
          ASSERT_EQ(chosen[i], a[i] != 0 ? one : a[i]);
        }
      }
    }
  }
}

struct RestOf {
  template <class T> T operator()(T a, T b) const { return std::fmod(a, b); }
  template <std::floating_point T> T plain(T a, T b, int& rare) const {
    return plain_rest(a, b, rare);
  }
};

TEST(Map, RestsAreTheCLibrarys) {
  const double edges[] = {0,     -0.0,     1,         -1,  0.3,   -7,    1e30,
                          -1e38, INFINITY, -INFINITY, NAN, 1e-45, 2e-38, 3e38};
  std::vector<double> left, right;
  for (const double x : edges) {
    for (const double y : edges) left.push_back(x), right.push_back(y);
  }
  const Array many = Array::random(f32, {2, 5000}, Lie::dense, 1, -1000, 1000);
  for (int64_t i = 0; i < 5000; ++i) {
    left.push_back(many[i]);
    right.push_back(i % 3 == 0 ? many[i] / static_cast<double>(i % 40 + 1) : many[5000 + i] / 300);
  }
  const Shape shape{static_cast<int64_t>(left.size())};
  for (const DType dtype : {f32, f64}) {
    const Array a = Array::of(dtype, shape, left), b = Array::of(dtype, shape, right);
    const Array out(dtype, shape);
    map_floating(RestOf{}, out.block, a.block, b.block);
    for (int64_t i = 0; i < shape[0]; ++i) {
      const double expected = std::fmod(a[i], b[i]);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(out[i]));
      } else {
        ASSERT_EQ(out[i], expected) << a[i] << " " << b[i];
        ASSERT_EQ(std::signbit(out[i]), std::signbit(expected)) << a[i] << " " << b[i];
      }
    }
  }
}

TEST(Map, RefusesWhatDoesNotFit) {
  const Array a(f32, {2, 3}), b(f32, {4}), ids(i32, {2, 3});
  EXPECT_THROW(map(Sum2{}, a.block, a.block, b.block), std::invalid_argument);
  EXPECT_THROW(map_floating(Exponential{}, a.block, ids.block), std::invalid_argument);
  EXPECT_THROW(map_pair(SumAndProduct{}, a.block, b.block, a.block, a.block, a.block, a.block),
               std::invalid_argument);
}

}  // namespace
}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/softmax/softmax.h"

#include <limits>

#include "src/kernels/reduce/reduce.h"
#include "tests/cuda/twin.h"

namespace weft {

class DeviceSoftmax : public OnGpu {};

struct SoftmaxCase {
  DType dtype;
  Lie lie;
  Shape shape;
  int dim;

  Shape kept() const {
    Shape shape_kept = shape;
    shape_kept[dim] = 1;
    return shape_kept;
  }
  Twin random(unsigned seed) const { return Array::random(dtype, shape, lie, seed, -9, 9); }
  Twin room() const { return Array(dtype, shape, lie); }
  Twin values() const { return Array(compute_dtype(dtype), kept()); }
};

template <class Check> static void for_softmax_rows(const Check& check) {
  constexpr DType kDtypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64};
  const std::pair<Shape, int> rows[] = {{{7}, 0},        {{5, 33}, 1},    {{33, 5}, 0},
                                        {{3, 5, 40}, 2}, {{3, 9, 4}, 1},  {{3, 1000}, 1},
                                        {{70, 64}, 1},   {{0, 4}, 1},     {{1, 6144}, 1},
                                        {{1, 12288}, 1}, {{1, 60000}, 1}, {{1, 120000}, 1}};
  for (const DType dtype : kDtypes) {
    for (const auto& [shape, dim] : rows) {
      for (const Lie lie : {Lie::dense, Lie::transposed, Lie::gaps}) {
        if (lie != Lie::dense && shape[dim] > 1000) continue;
        if (dtype != DType::bf16 && shape[dim] > 100'000) continue;  // for rows that do not fit
        SCOPED_TRACE(concat(dtype, " ", shape, " dim ", dim, " ", static_cast<int>(lie)));
        check(SoftmaxCase{dtype, lie, shape, dim});
      }
    }
  }
}

TEST_F(DeviceSoftmax, WholeRows) {
  for_softmax_rows([](const SoftmaxCase& c) {
    const Twin x = c.random(1), y = c.room(), z = c.room(), lse = c.values();
    for (const Device d : kBothDevices) {
      softmax(y.on(d), x.on(d), c.dim);
      softmax(z.on(d), x.on(d), c.dim, true);
      logsumexp(lse.on(d), x.on(d), c.dim);
    }
    y.expect_alike_computed_as(c.dtype);
    z.expect_alike_computed_as(c.dtype);
    lse.expect_alike_computed_as(c.dtype);
  });
}

TEST_F(DeviceSoftmax, FromStatistics) {
  for_softmax_rows([](const SoftmaxCase& c) {
    const Twin x = c.random(1), y = c.room(), z = c.room(), max = c.values(), sum = c.values();
    const Twin lse = c.values();
    for (const Device d : kBothDevices) {
      reduce(Reduction::max, max.on(d), x.on(d), {c.dim});
      row_sum_exp(sum.on(d), x.on(d), c.dim, max.on(d));
      logsumexp(lse.on(d), max.on(d), sum.on(d));
      softmax(y.on(d), x.on(d), c.dim, false, &max.on(d), &sum.on(d));
      softmax(z.on(d), x.on(d), c.dim, true, &max.on(d), &sum.on(d));
    }
    for (const Twin* twin : {&sum, &lse, &y, &z}) twin->expect_alike_computed_as(c.dtype);
  });
}

TEST_F(DeviceSoftmax, Gradients) {
  for_softmax_rows([](const SoftmaxCase& c) {
    const Twin dy = c.random(1), y = c.random(2), x = c.random(3), lse = c.values();
    const Twin dx = c.room(), dz = c.room(), dl = c.room(), dot = c.values(), given = c.room();
    for (const Device d : kBothDevices) {
      softmax_backward(dx.on(d), dy.on(d), y.on(d), c.dim);
      softmax_backward(dz.on(d), dy.on(d), y.on(d), c.dim, true);
      row_dot(dot.on(d), dy.on(d), y.on(d), c.dim);
      softmax_backward(given.on(d), dy.on(d), y.on(d), c.dim, false, &dot.on(d));
      logsumexp(lse.on(d), x.on(d), c.dim);
      logsumexp_backward(dl.on(d), dot.on(d), x.on(d), lse.on(d), c.dim);
      softmax_backward(dy.on(d), dy.on(d), y.on(d), c.dim, true, &dot.on(d));
    }
    for (const Twin* twin : {&dx, &dz, &dl, &dot, &given, &dy})
      twin->expect_alike_computed_as(c.dtype);
  });
}

TEST_F(DeviceSoftmax, InfinitiesAndNotANumber) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (const int64_t n : {3, 16}) {
    std::vector<double> values;
    for (const double first : {-inf, inf, nan, 5.0, -300.0}) {
      for (int64_t i = 0; i < n; ++i) {
        const bool all = first == -inf || first == -300.0;
        values.push_back(i == 0 || all ? first : -inf);
      }
    }
    const Twin x = Array::of(DType::f32, {5, n}, values), y = Array(DType::f32, {5, n});
    const Twin z = Array(DType::f32, {5, n}), lse = Array(DType::f32, {5});
    for (const Device d : kBothDevices) {
      softmax(y.on(d), x.on(d), 1);
      softmax(z.on(d), x.on(d), 1, true);
      logsumexp(lse.on(d), x.on(d), 1);
    }
    for (const Twin* twin : {&y, &z, &lse}) twin->expect_alike();
  }
}

TEST_F(DeviceSoftmax, InfinitiesAndNotANumberAmongManyElements) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  constexpr int64_t kSize =
      12400;  // several chunks a thread, also after those that it reads at once
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    for (const double special : {-inf, inf, nan}) {
      std::vector<double> values;
      for (const int64_t place : {int64_t{0}, kSize / 2, kSize - 1, kSize}) {
        for (int64_t i = 0; i < kSize; ++i) {
          const bool is_special = place == kSize || i == place;  // the last row has nothing else
          values.push_back(is_special ? special : static_cast<double>(i % 7 - 3));
        }
      }
      SCOPED_TRACE(concat(dtype, ' ', special));
      const Shape shape{4, kSize};
      const Twin x = Array::of(dtype, shape, values), y = Array(dtype, shape);
      const Twin lse = Array(compute_dtype(dtype), {4});
      for (const Device d : kBothDevices) {
        softmax(y.on(d), x.on(d), 1);
        logsumexp(lse.on(d), x.on(d), 1);
      }
      y.expect_alike_computed_as(dtype);
      lse.expect_alike_computed_as(dtype);
    }
  }
}

}  // namespace weft

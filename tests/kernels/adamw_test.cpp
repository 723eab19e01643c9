// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/adamw/adamw.h"

#include <gtest/gtest.h>

#include "tests/kernels/array.h"

namespace weft {
namespace {

/// Values of torch.optim (2.x, foreach=False, CPU, f32): three steps from p = [1, -2, 0.5], with
/// gradients [0.1, -0.2, 0.3], [1, 1, -1], [0, 0.5, 2].
const std::vector<double> kStart = {1, -2, 0.5};
const std::vector<double> kGrads[] = {{0.1, -0.2, 0.3}, {1, 1, -1}, {0, 0.5, 2}};
const std::vector<double> kAdamW = {0.972814739, -1.99687517, 0.489934444};
const std::vector<double> kSgd = {0.777432799, -2.17456555, 0.405911356};

TEST(Adamw, StepsAsTorchDoes) {
  const Array p = Array::of(f32, {3}, kStart), m(f32, {3}), v(f32, {3});
  AdamWNumbers options{
      .learning_rate = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
  for (const auto& numbers : kGrads) {
    adamw(p.block, m.block, v.block, Array::of(f32, {3}, numbers).block, options);
    ++options.step;
  }
  expect_near(p.values(), kAdamW, 1e-7);
}

TEST(Adamw, SgdStepsAsTorchDoes) {
  const Array p = Array::of(f32, {3}, kStart), velocity(f32, {3});
  const Sgd options{.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.01};
  for (const auto& numbers : kGrads)
    sgd(p.block, velocity.block, Array::of(f32, {3}, numbers).block, options);
  expect_near(p.values(), kSgd, 1e-7);
}

/// One step in plain loops.
std::vector<double> plain(const Array& p, const Array& m, const Array& v, const Array& g,
                          const AdamWNumbers& o, double factor) {
  std::vector<double> result = p.values();
  for (size_t i = 0; i < result.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const double grad = g[at] * factor, m1 = o.beta1 * m[at] + (1 - o.beta1) * grad;
    const double v1 = o.beta2 * v[at] + (1 - o.beta2) * grad * grad;
    const double mhat = m1 / (1 - std::pow(o.beta1, o.step)),
                 vhat = v1 / (1 - std::pow(o.beta2, o.step));
    result[i] -= o.learning_rate * (o.weight_decay * result[i] + mhat / (std::sqrt(vhat) + o.eps));
  }
  return result;
}

TEST(Adamw, TakesAnyDtypeSizeAndFactor) {
  for (int64_t n : {0, 1, 1023, 5000, 70000}) {
    for (DType dtype : {f32, bf16, f64}) {
      for (DType grad_dtype : {f32, bf16, f16}) {
        const Array p = Array::random(dtype, {n}), m = Array::random(f32, {n}, Lie::dense, 2);
        const Array v = Array::random(f32, {n}, Lie::dense, 3, 0, 2);
        const Array g = Array::random(grad_dtype, {n}, Lie::dense, 4),
                    factor = Array::of(f32, {}, {0.25});
        AdamWNumbers options;
        options.step = 7;
        const std::vector<double> expected = plain(p, m, v, g, options, 0.25);
        adamw(p.block, m.block, v.block, g.block, options, &factor.block);
        expect_near(p.values(), expected, rounding(dtype == f64 ? f32 : dtype));
      }
    }
  }
}

TEST(Adamw, SgdWithoutMomentumNeedsNoVelocity) {
  const Array p = Array::of(f32, {2}, {1, 2}), g = Array::of(bf16, {2}, {4, -4}),
              half = Array::of(f32, {}, {0.5});
  sgd(p.block, {}, g.block, {.learning_rate = 0.5}, &half.block);
  EXPECT_EQ(p.values(), (std::vector<double>{0, 3}));
  EXPECT_THROW(sgd(p.block, {}, g.block, {.momentum = 0.9}), std::invalid_argument);
}

TEST(Adamw, RefusesWhatDoesNotFit) {
  const Array p(f32, {3}), g(f32, {4}), ids(i32, {3}), strided(f32, {3, 3}, Lie::gaps);
  EXPECT_THROW(adamw(p.block, p.block, p.block, g.block, {}), std::invalid_argument);
  EXPECT_THROW(adamw(p.block, p.block, p.block, ids.block, {}), std::invalid_argument);
  EXPECT_THROW(adamw(strided.block, p.block, p.block, p.block, {}), std::invalid_argument);
}

}  // namespace
}  // namespace weft

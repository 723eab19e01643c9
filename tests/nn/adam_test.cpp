// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <cmath>

#include "tests/nn/plain_steps.h"
#include "tests/support/scratch.h"

namespace weft {
namespace {

TEST(Adam, AddsItsDecayToTheGradient) {
  const auto p = named_values("p", {3, 5}, 0), q = named_values("q", {4}, 1);
  Adam optimizer({p, q}, {.learning_rate = 0.05,
                          .beta1 = 0.8,
                          .beta2 = 0.95,
                          .weight_decay = 0.3,
                          .decays = [](const NamedParameter& one) { return one.name() == "p"; }});
  Values expected = values_of(p), m(15), v(15), plain = values_of(q), mq(4), vq(4);
  const auto step_plainly = [](Values& values, Values& ms, Values& vs, double decay, int step) {
    const Values gradient = gradient_of({static_cast<int64_t>(values.size())}, step);
    for (size_t i = 0; i < values.size(); ++i) {
      const double g = gradient[i] + decay * values[i];
      ms[i] = 0.8 * ms[i] + 0.2 * g;
      vs[i] = 0.95 * vs[i] + 0.05 * g * g;
      const double root = std::sqrt(vs[i] / (1 - std::pow(0.95, step)));
      values[i] -= 0.05 * ms[i] / (1 - std::pow(0.8, step)) / (root + 1e-8);
    }
  };
  for (int step = 1; step <= 4; ++step) {
    give_gradient(p, step, 2);
    give_gradient(q, step, 2);
    step_plainly(expected, m, v, 0.3, step);
    step_plainly(plain, mq, vq, 0, step);
    optimizer.step(full({}, 0.5));
    expect_values(values_of(p), expected, 2e-6);
    expect_values(values_of(q), plain, 2e-6);
  }
  EXPECT_EQ(error_of([&] { Adam({p}, {.moments = f8_e4m3}); }),
            "adam: dtype of moments is f8_e4m3, expected f32, bf16, f16 or f64");
  EXPECT_EQ(error_of([&] { Adam({p}, {.beta1 = 1}); }),
            "adam: betas are 1 and 0.999, expected both in [0, 1)");
}

}  // namespace
}  // namespace weft

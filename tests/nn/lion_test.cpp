// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include "tests/nn/plain_steps.h"
#include "tests/support/scratch.h"
#include "weft/ops/updates.h"

namespace weft {
namespace {

/// Chen et al. (2023), algorithm 2, in double.
TEST(Lion, StepsAsItsPaper) {
  for (const auto& [first, second] : {std::pair{1, 1}, {3, 1}, {2, 2}, {4, 1}}) {
    on_mesh({{"a", first}, {"b", second}}, [](const DeviceMesh& mesh) {
      const Sharding rows(mesh, {Shard(0)}), both(mesh, {Shard(1), Shard(0)});
      const std::vector<NamedParameter> parameters{named_values("p", {7, 3}, 0, rows),
                                                   named_values("q", {5, 2}, 1, both)};
      Lion optimizer(parameters,
                     {.learning_rate = 0.02, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.2});
      std::vector<Values> expected{values_of(parameters[0]), values_of(parameters[1])};
      std::vector<Values> m{Values(21), Values(10)};
      for (int step = 1; step <= 5; ++step) {
        for (size_t k = 0; k < 2; ++k) {
          give_gradient(parameters[k], step, 4);
          const Values gradient = gradient_of(parameters[k].parameter->shape(), step);
          for (size_t i = 0; i < expected[k].size(); ++i) {
            const double c = 0.9 * m[k][i] + 0.1 * gradient[i];
            expected[k][i] -= 0.02 * ((c > 0) - (c < 0) + 0.2 * expected[k][i]);
            m[k][i] = 0.95 * m[k][i] + 0.05 * gradient[i];
          }
        }
        optimizer.step(full({}, 0.25));
        for (size_t k = 0; k < 2; ++k) {
          expect_values(values_of(parameters[k]), expected[k], 2e-6);
          expect_values(whole_values(optimizer.state(k)[0]), m[k], 2e-6);
        }
      }
    });
  }
}

TEST(Lion, LeavesElementsWithoutDirection) {
  const auto p = named_values("p", {4}, 0);
  Lion optimizer({p}, {.learning_rate = 0.5});
  const Values before = values_of(p);
  p.parameter->value().set_grad(zeros({4}));
  optimizer.step();
  EXPECT_EQ(values_of(p), before);
  EXPECT_EQ(error_of([&] { Lion({p}, {.beta2 = -1}); }),
            "lion: betas are 0.9 and -1, expected both in [0, 1)");
  EXPECT_EQ(error_of([&] { Lion({p}, {.weight_decay = -1}); }),
            "lion: learning rate and weight decay are 0.0001 and -1, expected each at least 0");
  EXPECT_EQ(error_of([&] { Lion({p}, {.moments = i32}); }),
            "lion: dtype of moments is i32, expected f32, bf16, f16 or f64");
  EXPECT_EQ(error_of([&] { lion_(zeros({2}), zeros({3}), zeros({2}), ones({}), {}); }),
            "lion_: m is [3], expected [2], the shape of the parameter");
}

}  // namespace
}  // namespace weft

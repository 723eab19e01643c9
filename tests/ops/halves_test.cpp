// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/agreement.h"
#include "weft/ranks.h"

namespace weft {

namespace {

struct HalfCase {
  const char* name;
  Tensor (*function)(const Tensors& operands);
  std::vector<Array> operands;
  std::vector<Placements> placements;
};

Array ids(const Shape& shape, double high) { return random_array(shape, 0, high, i64, 9); }

const std::vector<HalfCase>& half_cases() {
  const Array x = random_array({4, 6, 8}, -2, 2), y = random_array({4, 6, 8}, -1, 1, f32, 2);
  const Array w = random_array({8}, 0.5, 1.5, f32, 3);
  const Array q = random_array({2, 4, 4, 8}, -1, 1), kv = random_array({2, 4, 2, 8}, -1, 1, f32, 4);
  static const std::vector<HalfCase> cases = {
      {"sum", [](auto& t) { return sum(t[0], {2}); }, {x}, {{Shard(2)}}},
      {"mean", [](auto& t) { return mean(t[0], {0}); }, {x}, {{Shard(0)}}},
      {"norm", [](auto& t) { return norm(t[0], {1}); }, {x}, {{Shard(1)}}},
      {"softmax", [](auto& t) { return softmax(t[0]); }, {x}, {{Shard(2)}}},
      {"log_softmax", [](auto& t) { return log_softmax(t[0]); }, {x}, {{Shard(2)}}},
      {"logsumexp", [](auto& t) { return logsumexp(t[0], 1); }, {x}, {{Shard(1)}}},
      {"cross_entropy",
       [](auto& t) { return cross_entropy(t[0], t[1]); },
       {x, ids({4, 6}, 8)},
       {{Shard(2)}, {Replicate()}}},
      {"embedding",
       [](auto& t) { return embedding(t[0], t[1]); },
       {random_array({7, 8}, -1, 1), ids({3, 5}, 7)},
       {{Shard(0)}, {Replicate()}}},
      {"rms_norm", [](auto& t) { return rms_norm(t[0], t[1]); }, {x, w}, {{Shard(2)}, {Shard(0)}}},
      {"layer_norm",
       [](auto& t) { return layer_norm(t[0], t[1], t[1]); },
       {x, w},
       {{Shard(2)}, {Shard(0)}}},
      {"rope", [](auto& t) { return rope(t[0]); }, {q}, {{Shard(1)}}},
      {"swiglu", [](auto& t) { return swiglu(t[0], t[1]); }, {x, y}, {{Shard(0)}, {Shard(0)}}},
      {"attention",
       [](auto& t) { return attention(t[0], t[1], t[2]); },
       {q, kv, kv},
       {{Shard(2)}, {Shard(2)}, {Shard(2)}}},
  };
  return cases;
}

}  // namespace

TEST(Halves, AreCloseToF32WholeAndSharded) {
  for (const HalfCase& c : half_cases()) {
    const Function function = [&](const Tensors& t) { return Tensors{c.function(t)}; };
    const Outcome expected = outcome_of(function, c.operands);
    for (const auto& [dtype, bound] : {std::pair(bf16, 4e-2), std::pair(f16, 5e-3)}) {
      std::vector<Array> operands = c.operands;
      for (Array& operand : operands) operand.dtype = operand.dtype == f32 ? dtype : operand.dtype;
      const std::string what = c.name + std::string(" ") + std::string(name_of(dtype));
      const auto expect_near = [&](const Outcome& actual) {
        for (size_t i = 0; i < expected.results.size(); ++i) {
          expect_close(actual.results[i], expected.results[i], bound, what + " result");
        }
        for (size_t i = 0; i < expected.gradients.size(); ++i) {
          EXPECT_EQ(actual.gradients[i].dtype, dtype) << what;
          expect_close(actual.gradients[i], expected.gradients[i], bound, what + " gradient");
        }
      };
      expect_near(outcome_of(function, operands));
      run_ranks(2, [&](Communicator world) {
        DeviceMesh mesh(world, {{"x", 2}});
        expect_near(outcome_of(function, operands, mesh, c.placements));
      });
    }
  }
}

TEST(Halves, OfALossAreF32) {
  const Tensor logits = zeros({3, 4}, {.dtype = bf16}), targets = zeros({3}, {.dtype = i64});
  EXPECT_EQ(cross_entropy_rows(logits, targets).dtype(), f32);
  EXPECT_EQ(cross_entropy(logits, targets).dtype(), f32);
}

}  // namespace weft

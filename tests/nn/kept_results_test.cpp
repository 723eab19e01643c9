// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/tape.h"

#include <gtest/gtest.h>

#include "tests/support/scratch.h"
#include "weft/autograd.h"
#include "weft/context.h"
#include "weft/extend/op_log.h"
#include "weft/layers.h"
#include "weft/module.h"
#include "weft/ops.h"
#include "weft/ranks.h"
#include "weft/transformer.h"

namespace weft {

using Ops = std::vector<std::string>;

/// Gradients of a small transformer whose blocks recompute all but the results of `kept`.
static std::vector<std::vector<float>> gradients_keeping(const Ops& kept, bool tied,
                                                         bool recompute = true) {
  manual_seed(5);
  // dim, layers, heads, kv_heads, head_dim, ffn, vocabulary
  TransformerConfig config{12, 3, 3, 1, 4, 17, 23};
  config.tied = tied;
  config.deviation = 0.3;
  TransformerModel model(config);
  model.materialize();
  for (Module* block : model.blocks()) block->set_recompute(recompute, kept);
  const Tensor ids = cast(uniform({3, 8}, 0, 23), i64);
  const Tensor loss = model.loss(slice(ids, 1, 0, 7), slice(ids, 1, 1, 8));
  loss.backward();
  std::vector<std::vector<float>> results{loss.to_vector<float>()};
  for (const ParameterPtr& parameter : model.parameters()) {
    results.push_back(parameter->grad().to_vector<float>());
  }
  return results;
}

TEST(KeptResults, GiveTheSameBits) {
  for (const bool tied : {false, true}) {
    const auto expected = gradients_keeping({}, tied, false);
    for (const Ops& kept : {Ops{}, costly_ops(), Ops{"attention"}, Ops{"linear"},
                            Ops{"rms_norm", "swiglu", "rope", "add"}}) {
      EXPECT_EQ(gradients_keeping(kept, tied), expected);
    }
  }
}

TEST(KeptResults, KeepTheRandomNumbersOfDropout) {
  const auto gradient = [](bool recomputes, const Ops& kept) {
    manual_seed(3);
    Tensor x = normal({40});
    x.set_requires_grad();
    const auto run = [](const Tensors& in) {
      return Tensors{dropout(dropout(gelu(in[0]), 0.4) * in[0], 0.3)};
    };
    const Tensors y = recomputes ? recompute(run, {x}, kept) : run({x});
    sum(square(y[0])).backward();
    return x.grad().to_vector<float>();
  };
  const auto expected = gradient(false, {});
  EXPECT_EQ(gradient(true, {"gelu"}), expected);
  EXPECT_EQ(gradient(true, {"dropout"}), expected);
}

/// Calls of an op in a training step of a transformer on `meta`.
static int64_t calls_of(const std::string& op, bool recompute, const Ops& kept) {
  TransformerConfig config{12, 3, 3, 1, 4, 17, 23};
  if (op == "grouped_matmul") config.experts = 4, config.expert_ffn = 5;
  TransformerModel model(config);
  model.materialize(meta);
  for (Module* block : model.blocks()) block->set_recompute(recompute, kept);
  const Tensor ids = empty({3, 8}, {.dtype = i64, .device = meta});
  OpLog log;
  model.loss(ids, ids).backward();
  int64_t calls = 0;
  for (const OpWork& work : log.work) calls += work.op == op ? work.calls : 0;
  return calls;
}

TEST(KeptResults, AreNotComputedAgain) {
  for (const char* op : {"linear", "attention", "grouped_matmul"}) {
    const int64_t once = calls_of(op, false, {});
    EXPECT_GT(once, 0) << op;
    EXPECT_EQ(calls_of(op, true, costly_ops()), once) << op;
    EXPECT_GT(calls_of(op, true, {}), once) << op;
  }
  EXPECT_GT(calls_of("rms_norm", true, costly_ops()), calls_of("rms_norm", false, {}));
}

TEST(KeptResults, AreThoseOfTheOuterOfTwoRecomputations) {
  const auto gradient = [](const Ops& kept) {
    manual_seed(3);
    Tensor x = normal({4, 4});
    x.set_requires_grad();
    const auto inner = [](const Tensors& in) { return Tensors{matmul(sin(in[0]), in[0])}; };
    const auto outer = [&](const Tensors& in) {
      const Tensor y = matmul(in[0], in[0]);
      return Tensors{matmul(tanh(recompute(inner, {y}, kept)[0]), y)};
    };
    sum(recompute(outer, {x}, kept)[0]).backward();
    return x.grad().to_vector<float>();
  };
  EXPECT_EQ(gradient({"matmul"}), gradient({}));
}

TEST(KeptResults, AreFreedByBackward) {
  Tensor x = ones({256, 64});
  x.set_requires_grad();
  const Tensor w = ones({64, 64});
  const int64_t before = memory_statistics().total.current;
  {
    const Tensor y = recompute([&](const Tensors& in) { return Tensors{sin(matmul(in[0], w))}; },
                               {x}, {"matmul"})[0];
    EXPECT_EQ(memory_statistics().total.current - before, 2 * 256 * 64 * 4);
    sum(y).backward();
  }
  EXPECT_EQ(memory_statistics().total.current - before, 256 * 64 * 4);
}

TEST(KeptResults, ErrorsNameTheOp) {
  Linear layer(3, 3);
  EXPECT_EQ(error_of([&] { layer.set_recompute(true, {"linaer"}); }),
            "recompute: a kept op is \"linaer\", expected the name of one, as \"linear\"");
  EXPECT_EQ(error_of([&] { layer.set_recompute(true, {"adamw_"}); }),
            "recompute: kept op \"adamw_\" changes its operands, expected one that makes results");
  int runs = 0;
  Tensor x = ones({3});
  x.set_requires_grad();
  const auto run = [&](const Tensors& in) {
    return Tensors{runs++ == 0 ? exp(in[0]) : tanh(in[0])};
  };
  const Tensor y = sum(recompute(run, {x}, {"exp", "tanh"})[0]);
  EXPECT_EQ(error_of([&] { y.backward(); }),
            "recompute: call 0 of a kept op is of tanh in backward, expected exp, as in forward");
}

TEST(KeptResults, OfShardedTensorsGiveTheSameBits) {
  for (const int ranks : {2, 3, 4}) {
    run_ranks(ranks, [&](Communicator world) {
      const DeviceMesh mesh(world, {{"tp", world.size()}});
      const auto gradients = [&](bool recomputes) {
        Tensor x = distribute(normal({5, 7}, 0, 1), mesh, {});
        Tensor w = distribute(normal({11, 7}, 0, 1), mesh, {{"tp", Shard(0)}});
        Tensor v = distribute(normal({7, 11}, 0, 1), mesh, {{"tp", Shard(1)}});
        for (Tensor* leaf : {&x, &w, &v}) leaf->set_requires_grad();
        const auto run = [](const Tensors& in) {
          return Tensors{gelu(linear(tanh(linear(in[0], in[1])), in[2]))};
        };
        const Tensor y = recomputes ? recompute(run, {x, w, v}, {"linear"})[0] : run({x, w, v})[0];
        sum(square(y)).backward();
        std::vector<std::vector<float>> all;
        for (const Tensor& leaf : {x, w, v}) {
          all.push_back(leaf.grad().full_tensor().to_vector<float>());
        }
        return all;
      };
      manual_seed(7);
      const auto expected = gradients(false);
      manual_seed(7);
      EXPECT_EQ(gradients(true), expected);
    });
  }
}

}  // namespace weft

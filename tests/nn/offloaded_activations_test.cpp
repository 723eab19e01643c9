// SPDX-License-Identifier: Apache-2.0
// What recomputed runs save, at rest on disk between forward and backward.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/scratch.h"
#include "weft/autograd.h"
#include "weft/context.h"
#include "weft/layers.h"
#include "weft/module.h"
#include "weft/ops.h"
#include "weft/ranks.h"
#include "weft/tier.h"
#include "weft/transformer.h"

namespace weft {

using Ops = std::vector<std::string>;
using Floats = std::vector<std::vector<float>>;

static TransformerConfig offloaded_model(int64_t layers) {
  // dim, layers, heads, kv_heads, head_dim, ffn, vocabulary
  TransformerConfig config{12, layers, 3, 1, 4, 17, 23};
  config.deviation = 0.3;
  return config;
}

/// Loss and gradients of two micro-steps of a transformer of three blocks.
static Floats gradients_with(const Tier& tier, const Ops& kept) {
  manual_seed(5);
  TransformerModel model(offloaded_model(3));
  model.materialize();
  for (Module* block : model.blocks()) block->set_recompute(true, kept);
  model.offload_activations(tier);
  Floats results;
  for (int micro_step = 0; micro_step < 2; ++micro_step) {
    const Tensor ids = cast(uniform({5, 8}, 0, 23), i64);
    const Tensor loss = model.loss(slice(ids, 1, 0, 7), slice(ids, 1, 1, 8));
    loss.backward();
    results.push_back(loss.to_vector<float>());
  }
  for (const ParameterPtr& parameter : model.parameters()) {
    results.push_back(parameter->grad().to_vector<float>());
  }
  return results;
}

TEST(OffloadedActivations, GiveTheSameBits) {
  const Scratch scratch;
  for (const Ops& kept :
       {Ops{}, costly_ops(), Ops{"attention"}, Ops{"rms_norm", "swiglu", "add"}}) {
    const Floats expected = gradients_with({}, kept);
    EXPECT_EQ(gradients_with(Tier::disk(scratch.root()), kept), expected);
    EXPECT_EQ(gradients_with(true, kept), expected);
  }
  EXPECT_TRUE(std::filesystem::is_empty(scratch.root()));
}

TEST(OffloadedActivations, OfShardedTensorsGiveTheSameBits) {
  const Scratch scratch;
  for (const int ranks : {1, 2, 3, 4}) {
    run_ranks(ranks, [&](Communicator world) {
      const DeviceMesh mesh(world, {{"tp", world.size()}});
      const auto gradients = [&](const Tier& tier) {
        // Uneven parts: on 4 ranks one rank has no rows of x and no part of a product.
        Tensor x = distribute(normal({3, 400}, 0, 1), mesh, {{"tp", Shard(0)}});
        Tensor w = distribute(normal({401, 400}, 0, 1), mesh, {});
        Tensor v = distribute(normal({400, 401}, 0, 1), mesh, {{"tp", Shard(1)}});
        for (Tensor* leaf : {&x, &w, &v}) leaf->set_requires_grad();
        const auto run = [](const Tensors& in) {
          return Tensors{gelu(linear(tanh(linear(in[0], in[1])), in[2]))};
        };
        // The result of a product over sharded columns is a Partial.
        const Tensor whole = x.redistribute({Replicate()});
        const Tensor y =
            matmul(matmul(whole, v.t().redistribute({Shard(0)}).t()), w.redistribute({Shard(0)}));
        const Tensor z = recompute(run, {y, w, v}, {"linear"}, tier)[0];
        const Tensor last = recompute(run, {z + x, w, v}, {}, tier)[0];
        sum(square(last)).backward();
        Floats all;
        for (const Tensor& leaf : {x, w, v}) {
          all.push_back(leaf.grad().full_tensor().to_vector<float>());
        }
        return all;
      };
      manual_seed(7);
      const auto expected = gradients({});
      manual_seed(7);
      EXPECT_EQ(gradients(Tier::disk(scratch.root())), expected);
    });
  }
}

constexpr int64_t kBytes = 64 * 512 * 4;

/// The most bytes at once of `layers` recomputed runs, each of which saves one tensor of kBytes.
static int64_t peak_of(int layers, const Tier& tier, Device device) {
  reset_peak_memory(device.kind);
  const int64_t before = memory_statistics(device.kind).total.current;
  Tensor x = empty({64, 512}, {.device = device});
  if (device == cpu) fill_(x, 0.5);
  x.set_requires_grad();
  Tensor y = exp(x);
  for (int i = 0; i < layers; ++i) {
    y = recompute([](const Tensors& in) { return Tensors{sin(tanh(in[0]))}; }, {y}, {}, tier)[0];
  }
  const Tensor loss = sum(std::exchange(y, {}));
  loss.backward();
  return memory_statistics(device.kind).total.peak - before;
}

TEST(OffloadedActivations, LeaveMemory) {
  const Scratch scratch;
  const Tier disk = Tier::disk(scratch.root());
  const int64_t few = peak_of(5, disk, cpu), many = peak_of(20, disk, cpu);
  EXPECT_EQ(few, many);
  EXPECT_EQ(peak_of(20, {}, cpu) - peak_of(5, {}, cpu), 15 * kBytes);
  EXPECT_LE(many, 11 * kBytes);
  // The plan is made on `meta`.
  EXPECT_EQ(peak_of(20, disk, meta), many);
  EXPECT_EQ(peak_of(20, true, meta), many);
}

TEST(OffloadedActivations, StayWhereTheyAreNotWorthIt) {
  Tensor x = ones({3});
  x.set_requires_grad();
  const auto run = [](const Tensors& in) { return Tensors{exp(in[0])}; };
  // The directory does not exist: nothing is written.
  const Tensor y = recompute(run, {exp(x)}, {}, Tier::disk("/nonexistent/folder"))[0];
  sum(y).backward();
  EXPECT_TRUE(x.grad());
  Tensor large = ones({1000});
  large.set_requires_grad();
  // A leaf has another owner.
  sum(recompute(run, {large}, {}, Tier::disk("/nonexistent/folder"))[0]).backward();
  EXPECT_EQ(error_of([&] {
              recompute(run, {exp(large)}, {}, Tier::disk("/nonexistent/folder"));
            }).find("offload: no file can be made in \"/nonexistent/folder\""),
            0U);
}

TEST(OffloadedActivations, ReportChangesInPlace) {
  const Scratch scratch;
  const Tier disk = Tier::disk(scratch.root());
  Tensor x = ones({1000});
  x.set_requires_grad();
  const auto run = [](const Tensors& in) { return Tensors{exp(in[0])}; };
  for (const int others : {0, 1, 2}) {
    Tensor y = sin(x);
    Tensor z = recompute(run, {y}, {}, disk)[0];
    {
      const NoGrad no_grad;
      fill_(y, 7);
    }
    for (int i = 0; i < others; ++i) z = recompute(run, {z}, {}, disk)[0];
    EXPECT_EQ(error_of([&] { sum(z).backward(); }),
              "recompute: input 0 [1000] was changed in place after forward, expected the same "
              "values in backward");
  }
  // After the copy is complete the tensor is free.
  Tensor y = sin(x);
  Tensor z = recompute(run, {y}, {}, disk)[0];
  z = recompute(run, {z}, {}, disk)[0];
  {
    const NoGrad no_grad;
    fill_(y, 7);
  }
  sum(z).backward();
}

TEST(OffloadedActivations, AreTakenInAnyOrder) {
  const Scratch scratch;
  const auto gradients = [](const Tier& tier) {
    Tensor x = ones({700});
    x.set_requires_grad();
    const auto run = [](const Tensors& in) { return Tensors{sin(exp(in[0]) * in[0])}; };
    Tensors ends;
    for (int i = 0; i < 3; ++i) {
      Tensor y = x * double(i + 1);
      for (int turn = 0; turn < 3; ++turn) y = recompute(run, {y}, {"exp"}, tier)[0];
      ends.push_back(sum(y));
    }
    // The first is dropped; the second runs backward before the third.
    ends[0] = {};
    ends[1].backward();
    ends[2].backward();
    return x.grad().to_vector<float>();
  };
  EXPECT_EQ(gradients(Tier::disk(scratch.root())), gradients({}));
}

TEST(OffloadedActivations, OfNestedRunsGiveTheSameBits) {
  const Scratch scratch;
  const auto gradients = [](const Tier& tier) {
    manual_seed(3);
    Tensor x = normal({20, 20});
    x.set_requires_grad();
    const auto inner = [](const Tensors& in) { return Tensors{dropout(sin(in[0]), 0.3)}; };
    const auto outer = [&](const Tensors& in) {
      const Tensor y = matmul(in[0], in[0]);
      return Tensors{matmul(tanh(recompute(inner, {y}, {}, tier)[0]), y)};
    };
    Tensor y = exp(x);
    for (int i = 0; i < 3; ++i) y = tanh(recompute(outer, {y}, {"matmul"}, tier)[0]);
    sum(y).backward();
    return x.grad().to_vector<float>();
  };
  EXPECT_EQ(gradients(Tier::disk(scratch.root())), gradients({}));
}

TEST(OffloadedActivations, AreVerified) {
  const Scratch scratch;
  Tensor x = ones({1000});
  x.set_requires_grad();
  Tensor y = exp(x);
  const auto run = [](const Tensors& in) { return Tensors{exp(in[0])}; };
  for (int i = 0; i < 3; ++i) y = recompute(run, {y}, {}, Tier::disk(scratch.root()))[0];
  corrupt_open_file(scratch.root(), 8);
  const std::string error = error_of<std::runtime_error>([&] { sum(y).backward(); });
  EXPECT_TRUE(has(error, "offload: an activation of 4000 bytes: the 4000 bytes from byte 0"));
}

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "tests/fsdp/little_llama.h"
#include "tests/support/ranks.h"
#include "weft/autograd.h"
#include "weft/layers.h"
#include "weft/ops.h"
#include "weft/optimizers.h"
#include "weft/ranks.h"

namespace weft {
namespace {

constexpr MixedPrecision kHalf{.compute = bf16, .reduce = bf16};
constexpr MixedPrecision kWideSums{.compute = bf16};

struct Learning {
  std::vector<MeshAxis> axes;
  FullyShardOptions options;
  int steps;
  int micro_steps = 1;
  int64_t rows = 4;
};

/// Returns the losses of some steps, in each of which the prediction must hold.
std::vector<double> losses_of(const Learning& learning) {
  std::vector<double> losses;
  run_ranks(ranks_of(learning.axes), [&](Communicator world) {
    DeviceMesh mesh(world, learning.axes);
    TransformerConfig config = little_llama();
    config.deviation = 0.05;
    TransformerModel model(config);
    shard(model, mesh, learning.options);
    const FullyShardBytes predicted = predicted_bytes(model, learning.micro_steps);
    model.materialize();
    AdamW optimizer(model.named_parameters(), {.learning_rate = 3e-4});
    for (int step = 0; step < learning.steps; ++step) {
      const int64_t before = mesh.traffic().bytes;
      const int64_t implicit = engine_statistics().implicit_bytes;
      Tensors parts;
      for (int micro = 0; micro < learning.micro_steps; ++micro) {
        NoSync hold(model, micro + 1 < learning.micro_steps);
        const int salt = step % 29 + micro;
        const Tensor ids = batch_of(mesh, learning.rows, salt);
        parts.push_back(model.loss(ids, batch_of(mesh, learning.rows, salt + 1)));
        parts.back().backward();
      }
      const int64_t others = engine_statistics().implicit_bytes - implicit;
      ASSERT_EQ(mesh.traffic().bytes - before - others, predicted.received) << "step " << step;
      optimizer.step();
      optimizer.zero_grad();
      double total = 0;
      for (const Tensor& part : parts) total += part.detach().full_tensor().item();
      if (world.rank() == 0) losses.push_back(total / learning.micro_steps);
    }
    const FullyShardBytes measured = measured_bytes(model);
    EXPECT_EQ(measured.parameters, predicted.parameters);
    EXPECT_EQ(measured.gradients, predicted.gradients);
    EXPECT_EQ(measured.buffers, predicted.buffers);
    EXPECT_EQ(measured.copied, predicted.copied);
    EXPECT_EQ(engine_statistics().gradient_copies, 0);
  });
  return losses;
}

TEST(Precision, HalfLearnsAsF32AndAsOneRank) {
  const auto f32_losses = losses_of({{{"dp", 1}}, {}, 200, 1, 16});
  const auto alone = losses_of({{{"dp", 1}}, {.precision = kWideSums}, 200, 1, 16});
  const auto together = losses_of({{{"dp", 4}}, {.precision = kWideSums}, 200, 1, 16});
  ASSERT_EQ(alone.size(), 200u);
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_NEAR(alone[i], f32_losses[i], 0.01 * f32_losses[i]) << "step " << i;
    EXPECT_NEAR(together[i], alone[i], 1e-3 * alone[i]) << "step " << i;
  }
  EXPECT_LT(alone.back(), 0.9 * alone.front());
}

class Precision : public testing::TestWithParam<std::tuple<const char*, bool>> {};

/// The losses equal those of one rank: parameters are gathered in bf16, gradients reduced in the
/// given dtype.
TEST_P(Precision, LearnAsOneRank) {
  const auto [name, wide] = GetParam();
  const MixedPrecision precision = wide ? kWideSums : kHalf;
  std::vector<MeshAxis> axes{{"dp", 3}};
  if (std::string(name) == "hsdp") axes = {{"across", 2}, {"within", 2}};
  for (int micro_steps : {1, 4}) {
    const auto alone = losses_of({{{"dp", 1}}, {.precision = precision}, 5, micro_steps});
    const auto together = losses_of(
        {axes,
         {.strategy = Strategy::named(name), .precision = precision, .bucket_bytes = 2000},
         5,
         micro_steps});
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_NEAR(together[i], alone[i], 1e-2) << "step " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, Precision,
                         testing::Combine(testing::Values("full_shard", "zero2", "zero1", "ddp",
                                                          "hsdp"),
                                          testing::Bool()));

/// The f32 master parameters have equal bits for any number of ranks; half as many bytes are sent.
TEST(Precision, WiresCarryTheirDtypes) {
  run_ranks(4, [](Communicator world) {
    DeviceMesh mesh(world, {{"dp", 4}});
    const auto bytes = [&](const MixedPrecision& precision) {
      TransformerModel model(little_llama());
      shard(model, mesh, {.reshard_after_forward = false, .precision = precision});
      return predicted_bytes(model);
    };
    const FullyShardBytes whole = bytes({}), half = bytes(kHalf), wide = bytes(kWideSums);
    EXPECT_EQ(2 * half.received, whole.received);
    EXPECT_EQ(half.parameters, whole.parameters);
    EXPECT_EQ(half.gradients, whole.gradients);
    EXPECT_GT(wide.received, half.received);
    EXPECT_LT(wide.received, whole.received);
    EXPECT_EQ(half.copied, 0);
    const FullyShardBytes narrow = bytes({.storage = bf16});
    EXPECT_EQ(2 * narrow.parameters, whole.parameters);
    EXPECT_EQ(2 * narrow.gradients, whole.gradients);
    // A gather dtype other than the compute dtype costs a pass over the full parameters, in f32.
    const FullyShardBytes wired = bytes({.gather = bf16});
    EXPECT_LT(wired.received, whole.received);
    EXPECT_GT(wired.copied, 0);
  });
}

/// The default is the dtype of the parameter at rest.
TEST(Precision, GradientsHaveTheDtypeOfTheirSums) {
  run_ranks(3, [](Communicator world) {
    DeviceMesh mesh(world, {{"dp", 3}});
    for (const DType storage : {bf16, f32}) {
      for (const std::optional<DType> sums : {std::optional<DType>(), std::optional(f32)}) {
        TransformerModel model(little_llama());
        shard(model, mesh,
              {.precision = {.storage = storage, .compute = bf16, .accumulate = sums}});
        model.materialize();
        for (int micro = 0; micro < 2; ++micro) {
          const NoSync hold(model, micro == 0);
          const Tensor ids = batch_of(mesh, 3, micro);
          model.loss(ids, ids).backward();
        }
        for (const ParameterPtr& parameter : model.parameters()) {
          EXPECT_EQ(parameter->value().dtype(), storage);
          EXPECT_EQ(parameter->grad().dtype(), sums.value_or(storage));
        }
      }
    }
  });
}

/// Records the dtypes of its inputs; its buffer is part of the result.
class Noting final : public Module {
 public:
  Noting() {
    weight_ = declare("weight", {4, 4}, normal_values(1));
    buffer_ = declare("buffer", {4}, normal_values(1));
    buffer_->set_trainable(false);
  }
  DType input = f32, weight = f32, buffer = f32;

 protected:
  Tensors forward(const Tensors& inputs) override {
    input = inputs[0].dtype();
    weight = weight_->tensor().dtype();
    buffer = buffer_->tensor().dtype();
    return {linear(inputs[0].to(bf16), weight_->tensor()), inputs[1]};
  }

 private:
  ParameterPtr weight_, buffer_;
};

TEST(Precision, CastsInputsAndOutputsOnlyWhereToldAndLeavesBuffers) {
  run_ranks(2, [](Communicator world) {
    DeviceMesh mesh(world, {{"dp", 2}});
    const Sharding rows(mesh, {Shard(0)});
    const auto run = [&](const MixedPrecision& precision, Noting& module) {
      fully_shard(module, mesh, {.ignored = {"buffer"}, .precision = precision});
      module.materialize();
      return module({ones({4, 4}, {f32, cpu, rows}), zeros({4}, {i64, cpu, rows})});
    };
    Noting plain, cast, buffers;
    Tensors outputs = run(kHalf, plain);
    EXPECT_EQ(plain.input, f32);
    EXPECT_EQ(plain.weight, bf16);
    EXPECT_EQ(plain.buffer, f32);
    EXPECT_EQ(outputs[0].dtype(), bf16);
    outputs = run({.compute = bf16, .inputs = bf16, .outputs = f32}, cast);
    EXPECT_EQ(cast.input, bf16);
    EXPECT_EQ(outputs[0].dtype(), f32);
    EXPECT_EQ(outputs[1].dtype(), i64);
    sum(outputs[0]).backward();
    EXPECT_EQ(cast.parameters()[0]->grad().dtype(), f32);
    run({.compute = bf16, .buffers = bf16}, buffers);
    EXPECT_EQ(buffers.buffer, bf16);
  });
}

TEST(Precision, DividesGradientsWhenTold) {
  std::vector<float> gradients[2];
  for (int ranks : {1, 3}) {
    run_ranks(ranks, [&](Communicator world) {
      DeviceMesh mesh(world, {{"dp", world.size()}});
      std::vector<float> found[2];
      for (double factor : {1.0, 4.0}) {
        manual_seed(5);
        Linear layer(4, 4);
        fully_shard(layer, mesh, {.gradient_divide_factor = factor});
        layer.materialize();
        sum(layer(ones({6, 4}, {f32, cpu, Sharding(mesh, {Shard(0)})}))).backward();
        found[factor == 4.0] = layer.parameters()[0]->grad().full_tensor().to_vector<float>();
      }
      for (size_t i = 0; i < found[0].size(); ++i) EXPECT_EQ(found[1][i], found[0][i] / 4);
      if (world.rank() == 0) gradients[ranks == 1 ? 0 : 1] = found[0];
    });
  }
  EXPECT_EQ(gradients[0], gradients[1]);
}

}  // namespace
}  // namespace weft

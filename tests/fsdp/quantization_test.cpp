// SPDX-License-Identifier: Apache-2.0
#include "weft/fsdp_options.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/fsdp/little_llama.h"
#include "tests/fsdp/quantized_chain.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/autograd.h"
#include "weft/error.h"
#include "weft/optimizers.h"
#include "weft/ranks.h"

namespace weft {
namespace {

std::vector<Place> places() {
  return {{"one", {{"dp", 1}}},
          {"two", {{"dp", 2}}},
          {"three", {{"dp", 3}}},
          {"four", {{"dp", 4}}},
          {"zero2", {{"dp", 3}}, "zero2"},
          {"hsdp", {{"replicate", 2}, {"shard", 2}}, "hsdp"},
          {"both", {{"across", 2}, {"within", 2}}},
          {"within", {{"across", 2}, {"within", 2}}, "full_shard", "within"}};
}

std::vector<Quantization> quantizations() {
  return {{.gather = i8, .block = 8},
          {.gather = f8_e4m3, .block = 8},
          {.reduce = i8, .block = 8},
          {.reduce = bf16},
          {.gather = i8, .reduce = i8, .block = 8, .error_feedback = true}};
}

TEST(Quantization, GradientsAreNearAndBytesAsPredicted) {
  const Values expected = plain_gradients(2);
  for (const Place& place : places()) {
    for (const Quantization& quantization : quantizations()) {
      for (const int64_t dim : {0, 1}) {
        const std::string name =
            concat(place.name, " gather ", quantization.gather.value_or(f32), " reduce ",
                   quantization.reduce.value_or(f32), " dim ", dim);
        run_ranks(place.ranks(), [&](Communicator world) {
          const Outcome outcome = outcome_of(place, world, options_of(place, quantization), dim);
          expect_near(outcome.gradients, expected, name, place.ranks() == 1 ? 2e-5 : 0.4);
          expect_same_bytes(outcome.measured, outcome.predicted, name);
        });
      }
    }
  }
}

/// Errors shrink with the step of the codes: a wrong scale or place would not.
TEST(Quantization, ErrorsAreThoseOfTheCodes) {
  const Values expected = plain_gradients(2);
  run_ranks(3, [&](Communicator world) {
    const Place place{"three", {{"dp", 3}}};
    const auto error_of = [&](const Quantization& quantization) {
      return distance(outcome_of(place, world, options_of(place, quantization)).gradients,
                      expected);
    };
    double greatest = 0;
    for (const auto& gradient : expected) {
      for (const float value : gradient) greatest = std::max(greatest, std::abs(double{value}));
    }
    EXPECT_LT(error_of({.gather = i8, .block = 8}), 0.05 * greatest);
    EXPECT_LT(error_of({.gather = f8_e4m3, .block = 8}), 0.2 * greatest);
    // Two micro-steps of three ranks, each rounded to a neighbour.
    EXPECT_LT(error_of({.reduce = i8, .block = 8}), 6.0 / 127 * greatest);
    EXPECT_LT(error_of({.reduce = bf16}), 6.0 / 128 * greatest);
  });
}

/// Bytes that the gathers, or the reductions, of a step receive.
double bytes_of(TransformerModel& model, bool of_gathers) {
  int64_t bytes = 0;
  for (const ProgramStep& step : schedule_of(model).steps) {
    if ((step.act == ProgramAct::gather) == of_gathers) bytes += step.bytes;
  }
  return static_cast<double>(bytes);
}

TEST(Quantization, CodesMoveAQuarterOfTheBytes) {
  run_ranks(4, [](Communicator world) {
    DeviceMesh mesh(world, {{"dp", 4}});
    TransformerConfig config = little_llama();
    config.dim = 96, config.ffn = 250, config.vocabulary = 501;
    const auto bytes = [&](const Quantization& quantization, bool of_gathers) {
      TransformerModel model(config);
      shard(model, mesh, {.quantization = quantization});
      model.materialize(meta);
      return bytes_of(model, of_gathers);
    };
    EXPECT_LE(bytes({.gather = i8}, true), 0.27 * bytes({}, true));
    EXPECT_LE(bytes({.gather = f8_e4m3}, true), 0.26 * bytes({}, true));
    EXPECT_LE(bytes({.reduce = i8}, false), 0.27 * bytes({}, false));
    EXPECT_LE(bytes({.reduce = bf16}, false), 0.51 * bytes({}, false));
    EXPECT_EQ(bytes({.reduce = i8}, true), bytes({}, true));
  });
}

TEST(Quantization, RanksComputeOnTheSameParameters) {
  run_ranks(3, [](Communicator world) {
    DeviceMesh mesh(world, {{"dp", 3}});
    manual_seed(4);
    Chain chain;
    shard(chain, mesh, {.quantization = {.gather = i8, .block = 8}});
    chain.materialize();
    FsdpModule(chain).unshard();
    for (const auto& layer : chain.layers) FsdpModule(*layer).unshard();
    for (const ParameterPtr& parameter : chain.parameters()) {
      const Tensor own = parameter->tensor().detach();
      const Tensor local = own.local();
      const std::vector<double> mine = local.to_vector<double>();
      std::vector<double> all(mine.size() * 3);
      const std::vector<int64_t> counts(3, static_cast<int64_t>(mine.size()));
      const Piece piece{.send = mine.data(), .recv = all.data(), .dtype = f64, .counts = counts};
      world.all_gather(std::span(&piece, 1)).wait();
      for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], mine[i % mine.size()]);
    }
  });
}

std::vector<double> losses_of(const Communicator& world, const std::vector<MeshAxis>& axes,
                              const FullyShardOptions& options, int steps, bool float8 = false) {
  manual_seed(11);
  DeviceMesh mesh(world, axes);
  TransformerModel model(little_llama());
  if (float8) {
    const auto is_no_head = [](const Linear&, const std::string& path) {
      return path != "lm_head";
    };
    EXPECT_EQ(convert_to_float8(model, is_no_head), 3 * 7);
  }
  shard(model, mesh, options);
  model.materialize();
  AdamW optimizer(model.named_parameters(), {.learning_rate = 1e-2});
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    const Tensor ids = batch_of(mesh, 6, 0);
    const Tensor loss = model.loss(ids, ids);
    loss.backward();
    losses.push_back(loss.detach().full_tensor().item());
    optimizer.step();
    optimizer.zero_grad();
  }
  return losses;
}

TEST(Quantization, TrainsAsFullPrecisionDoes) {
  const std::vector<MeshAxis> axes{{"replicate", 2}, {"shard", 2}};
  run_ranks(4, [&](Communicator world) {
    const FullyShardOptions plain{.strategy = Strategy::hsdp()};
    FullyShardOptions coded = plain;
    coded.quantization = {.gather = i8, .reduce = i8, .block = 32};
    const auto expected = losses_of(world, axes, plain, 30);
    const auto losses = losses_of(world, axes, coded, 30);
    EXPECT_LT(expected.back(), 0.5 * expected.front());
    EXPECT_NEAR(losses.back(), expected.back(), 0.05);
    // The same random numbers give the same bits.
    EXPECT_EQ(losses, losses_of(world, axes, coded, 30));
  });
}

/// Scales are those of whole tensors, so that sharding changes only the order of sums.
TEST(Quantization, Float8LayersTrainAlikeOnAnyRanks) {
  std::vector<double> plain, first;
  const std::vector<std::vector<MeshAxis>> meshes{
      {{"dp", 1}}, {{"dp", 2}}, {{"dp", 3}}, {{"dp", 4}}, {{"replicate", 2}, {"shard", 2}}};
  for (const auto& axes : meshes) {
    const int ranks = ranks_of(axes);
    run_ranks(ranks, [&](Communicator world) {
      const FullyShardOptions options{.strategy = axes.size() == 2 ? Strategy::hsdp()
                                                                   : Strategy::full_shard()};
      const auto losses = losses_of(world, axes, options, 20, true);
      if (world.rank() != 0) return;
      if (ranks == 1) first = losses;
      EXPECT_NEAR(losses[0], first[0], 1e-3) << ranks;
      EXPECT_NEAR(losses.back(), first.back(), 0.05) << ranks;
    });
  }
  run_ranks(1, [&](Communicator world) { plain = losses_of(world, {{"dp", 1}}, {}, 20); });
  EXPECT_NEAR(first.back(), plain.back(), 0.1);
}

TEST(Quantization, WrongOnesAreRefused) {
  run_ranks(2, [](Communicator world) {
    DeviceMesh mesh(world, {{"dp", 2}});
    const auto error = [&](const FullyShardOptions& options) {
      Chain chain;
      return error_of([&] { fully_shard(chain, mesh, options); });
    };
    EXPECT_EQ(error({.quantization = {.gather = bf16}}),
              "fully_shard: quantization of the gather is bf16, expected i8 or f8_e4m3");
    EXPECT_EQ(error({.quantization = {.reduce = f8_e4m3}}),
              "fully_shard: quantization of the gradients is f8_e4m3, expected i8 or bf16");
    EXPECT_EQ(error({.quantization = {.gather = i8, .block = 6}}),
              "fully_shard: block of the quantization is 6, expected a positive multiple of 4");
    EXPECT_EQ(error({.precision = {.gather = bf16}, .quantization = {.gather = i8}}),
              "fully_shard: gather dtypes are bf16 and, quantized, i8, expected one of both");
    EXPECT_EQ(error({.quantization = {.error_feedback = true}}),
              "fully_shard: gradients with error feedback are not quantized, expected a dtype");
    EXPECT_EQ(error({.strategy = Strategy::ddp(), .quantization = {.reduce = i8}}),
              "fully_shard: gradients are all-reduced, as i8, expected a strategy that shards "
              "them; leave out the quantization of gradients");
    Chain chain;
    fully_shard(chain, mesh, {.quantization = {.reduce = i8}});
    EXPECT_EQ(error_of([&] {
                FsdpModule(chain).set_custom_reduce_scatter(
                    [](const Communicator& ranks, std::span<const Piece> pieces) {
                      return ranks.reduce_scatter(pieces, ReduceOp::sum);
                    });
              }),
              "set_custom_reduce_scatter: gradients are quantized, expected gradients that are "
              "reduce-scattered");
  });
}

}  // namespace
}  // namespace weft

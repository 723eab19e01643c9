// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/fsdp/little_llama.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/autograd.h"
#include "weft/ops.h"
#include "weft/optimizers.h"
#include "weft/ranks.h"

namespace weft {
namespace {

struct Way : ShardedWay {
  /// Layers are recomputed in backward: each by itself, or all in one region.
  bool recomputes = false, recomputes_all = false;
};

std::vector<Way> ways(int n) {
  const Strategy deferring{"deferring", {{Shard(0), Partial(), Shard(0)}}};
  const Strategy hosts{"hosts",
                       {{Replicate(), Shard(0), Shard(0)}, {Shard(0), Shard(0), Shard(0)}}};
  const Strategy late{"late", {{Replicate(), Partial(), Shard(0)}, {Shard(0), Shard(0), Shard(0)}}};
  std::vector<Way> all = {
      {"full_shard", {{"dp", n}}},
      {"grad_op", {{"dp", n}}, {.reshard_after_forward = false}},
      {"zero2", {{"dp", n}}, {.strategy = Strategy::zero2()}},
      {"zero1", {{"dp", n}}, {.strategy = Strategy::zero1()}},
      {"ddp", {{"dp", n}}, {.strategy = Strategy::ddp(), .bucket_bytes = 3000}},
      {"deferring", {{"dp", n}}, {.strategy = deferring}},
      {"unprefetched", {{"dp", n}}, {.prefetch = 0}},
      {"recomputing", {{"dp", n}}, {}, true},
      {"recomputing_all", {{"dp", n}}, {}, false, true},
      {"offloaded", {{"dp", n}}, {.offload = {.parameters = true, .gradients = true}}},
      {"offloaded_gradients", {{"dp", n}}, {.offload = {.gradients = true}}},
      {"offloaded_ddp",
       {{"dp", n}},
       {.strategy = Strategy::ddp(), .offload = {true, true}, .bucket_bytes = 3000}},
      {"offloaded_zero1", {{"dp", n}}, {.strategy = Strategy::zero1(), .offload = {true, true}}},
  };
  if (n != 4) return all;
  const std::vector<MeshAxis> grid{{"across", 2}, {"within", 2}};
  all.push_back({"hsdp", grid, {.strategy = Strategy::hsdp()}});
  all.push_back({"full_shard2", grid, {.prefetch = 2}});
  all.push_back({"kept_within", grid, {.reshard_after_forward = "within"}});
  all.push_back({"kept_across", grid, {.reshard_after_forward = "across"}});
  all.push_back({"ddp2", grid, {.strategy = Strategy::ddp()}});
  all.push_back({"zero1_2", grid, {.strategy = Strategy::zero1()}});
  all.push_back({"hosts", grid, {.strategy = hosts}});
  all.push_back({"offloaded_hsdp", grid, {.strategy = Strategy::hsdp(), .offload = {true, true}}});
  all.push_back({"offloaded_late", grid, {.strategy = late, .offload = {true, true}}});
  all.push_back({"late", grid, {.strategy = late}});
  return all;
}

std::vector<Way> all_ways() {
  std::vector<Way> all;
  for (int n : {1, 3, 4}) {
    for (Way& way : ways(n)) all.push_back(std::move(way));
  }
  return all;
}

class Strategies : public testing::TestWithParam<Way> {};

/// The bytes of all full parameters.
double bytes_of_parameters(const TransformerModel& model) {
  double bytes = 0;
  for (const ParameterPtr& p : model.parameters())
    bytes += 4.0 * static_cast<double>(p->value().numel());
  return bytes;
}

/// Trains some steps of `micro_steps`, appends the losses, and checks the bytes of each step.
void train(const Way& way, int micro_steps, std::vector<double>* losses) {
  run_ranks(way.ranks(), [&](Communicator world) {
    DeviceMesh mesh(world, way.axes);
    TransformerModel model(little_llama());
    for (Module* block : model.blocks()) block->set_recompute(way.recomputes);
    model.module("model.layers").set_recompute(way.recomputes_all);
    shard(model, mesh, way.options);
    FullyShardBytes predicted = predicted_bytes(model, micro_steps);
    model.materialize();
    if (way.recomputes_all) {
      // Layers in a recomputed region are needed twice in backward, as the first step shows.
      model.loss(batch_of(mesh, 4, 1), batch_of(mesh, 4, 2)).backward();
      for (const ParameterPtr& p : model.parameters()) p->clear_grad();
      EXPECT_GE(predicted_bytes(model, micro_steps).received, predicted.received);
      predicted = predicted_bytes(model, micro_steps);
    }
    AdamW optimizer(model.named_parameters(), {.learning_rate = 1e-2});
    for (int step = 0; step < 4; ++step) {
      const int64_t before = mesh.traffic().bytes;
      const int64_t copies = engine_statistics().gradient_copies;
      const int64_t implicit = engine_statistics().implicit_bytes;
      Tensors parts;
      for (int micro = 0; micro < micro_steps; ++micro) {
        NoSync hold(model, micro + 1 < micro_steps);
        const int salt = step % 2 * micro_steps + micro;
        Tensor loss = model.loss(batch_of(mesh, 4, salt), batch_of(mesh, 4, salt + 1));
        loss.backward();
        parts.push_back(loss.detach());
      }
      const int64_t others = engine_statistics().implicit_bytes - implicit;
      EXPECT_EQ(mesh.traffic().bytes - before - others, predicted.received) << "step " << step;
      EXPECT_EQ(engine_statistics().gradient_copies, copies) << "step " << step;
      optimizer.step();
      optimizer.zero_grad();
      double total = 0;
      for (const Tensor& part : parts) total += part.full_tensor().item();
      if (world.rank() == 0 && losses) losses->push_back(total / micro_steps);
    }
    const FullyShardBytes measured = measured_bytes(model);
    EXPECT_EQ(measured.parameters, predicted.parameters);
    EXPECT_EQ(measured.gradients, predicted.gradients);
    EXPECT_EQ(measured.buffers, predicted.buffers);
    EXPECT_EQ(measured.received, predicted.received);
    EXPECT_EQ(measured.by_axes, predicted.by_axes);
    EXPECT_EQ(measured.copied, 0);
    EXPECT_EQ(predicted_bytes(model, micro_steps).received, predicted.received);
    const Offload offload = way.options.offload;
    if (way.ranks() == 1) {
      EXPECT_EQ(predicted.received, 0);
      EXPECT_EQ(predicted.buffers > 0,
                offload.parameters.offloads() || offload.gradients.offloads());
    }
  });
}

TEST_P(Strategies, LearnAsOneRankAndMoveWhatTheyPredict) {
  for (int micro_steps : {1, 4}) {
    std::vector<double> alone, together;
    train({"alone", {{"dp", 1}}}, micro_steps, &alone);
    train(GetParam(), micro_steps, &together);
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_NEAR(together[i], alone[i], 1e-4) << micro_steps << " micro-steps, step " << i;
    }
  }
}

/// The bytes of all ranks, in units of the parameters times (N - 1).
double units_moved(const Way& way, int micro_steps) {
  double units = 0;
  run_ranks(way.ranks(), [&](Communicator world) {
    DeviceMesh mesh(world, way.axes);
    TransformerModel model(little_llama());
    shard(model, mesh, way.options);
    const double own = static_cast<double>(predicted_bytes(model, micro_steps).received);
    std::vector<double> all(static_cast<size_t>(world.size()));
    std::vector<int64_t> counts(all.size(), 1);
    Piece piece{&own, all.data(), f64, counts};
    world.all_gather({&piece, 1}).wait();
    double bytes = 0;
    for (double each : all) bytes += each;
    if (world.rank() == 0) units = bytes / bytes_of_parameters(model) / (world.size() - 1);
  });
  return units;
}

/// The strategies' table; the outermost param group is gathered once a step.
TEST(Strategies, MoveAsTheTableSays) {
  const auto plain = [](Strategy strategy, bool reshard) {
    return Way{"", {{"dp", 4}}, {.reshard_after_forward = reshard, .strategy = strategy}};
  };
  for (int a : {1, 4}) {
    EXPECT_DOUBLE_EQ(units_moved(plain(Strategy::ddp(), true), a), 2);
    EXPECT_DOUBLE_EQ(units_moved(plain(Strategy::zero1(), true), a), 2);
    EXPECT_DOUBLE_EQ(units_moved(plain(Strategy::zero2(), true), a), a + 1);
    EXPECT_DOUBLE_EQ(units_moved(plain(Strategy::full_shard(), false), a), 2 * a);
    const double thrice = units_moved(plain(Strategy::full_shard(), true), a);
    EXPECT_LT(thrice, 3 * a);
    EXPECT_GT(thrice, 2.5 * a);
  }
}

/// Gradients move across groups 2 x the 1/shard once, and within groups as in full_shard.
TEST(Strategies, HybridDefersTheSumAcross) {
  run_ranks(4, [](Communicator world) {
    DeviceMesh mesh(world, {{"across", 2}, {"within", 2}});
    TransformerModel model(little_llama());
    shard(model, mesh, {.reshard_after_forward = false, .strategy = Strategy::hsdp()});
    for (int a : {1, 4}) {
      const FullyShardBytes bytes = predicted_bytes(model, a);
      ASSERT_EQ(bytes.by_axes.size(), 2u);
      EXPECT_EQ(bytes.by_axes[0].axes, "within");
      EXPECT_EQ(bytes.by_axes[1].axes, "across");
      double sums[2] = {};
      for (int i = 0; i < 2; ++i) {
        std::vector<int64_t> all(4), counts(4, 1);
        Piece piece{&bytes.by_axes[static_cast<size_t>(i)].bytes, all.data(), i64, counts};
        world.all_gather({&piece, 1}).wait();
        for (int64_t each : all) sums[i] += static_cast<double>(each);
      }
      const double whole = bytes_of_parameters(model);
      EXPECT_DOUBLE_EQ(sums[0], 2 * a * whole * 2 * (2 - 1));  // two groups of two
      EXPECT_DOUBLE_EQ(sums[1], 2 * whole * (2 - 1));
    }
  });
}

/// Repeated backwards without clearing: sums continue, whether both sync or one does not. Clearing
/// a gradient also clears the part that waits for a sync.
TEST_P(Strategies, SumGradientsUntilTheyAreCleared) {
  on_llama(
      GetParam().axes, GetParam().options, [&](TransformerModel& model, const DeviceMesh& mesh) {
        AdamW optimizer(model.named_parameters());
        const auto backward = [&](bool sync) {
          NoSync hold(model, !sync);
          model.loss(batch_of(mesh, 4, 1), batch_of(mesh, 4, 2)).backward();
        };
        const auto expect_times = [&](double times, const std::vector<std::vector<float>>& once) {
          const auto found = gradients_of(model);
          for (size_t i = 0; i < once.size(); ++i) {
            for (size_t j = 0; j < once[i].size(); ++j) {
              ASSERT_NEAR(found[i][j], times * once[i][j],
                          1e-5 * (1 + std::abs(times * once[i][j])));
            }
          }
        };
        backward(true);
        const auto once = gradients_of(model);
        backward(true);
        expect_times(2, once);
        backward(false);
        backward(true);
        expect_times(4, once);
        optimizer.zero_grad();
        backward(false);
        optimizer.zero_grad();
        backward(true);
        expect_times(1, once);
      });
}

/// Two forwards, one of them without gradients, then both backwards.
TEST_P(Strategies, TakeBackwardsAsTheyCome) {
  on_llama(GetParam().axes, GetParam().options,
           [&](TransformerModel& model, const DeviceMesh& mesh) {
             const auto loss = [&](int salt) {
               return model.loss(batch_of(mesh, 4, salt), batch_of(mesh, 4, salt + 1));
             };
             loss(1).backward();
             loss(2).backward();
             const auto expected = gradients_of(model);
             for (const ParameterPtr& p : model.parameters()) p->clear_grad();
             Tensor first = loss(1), second = loss(2);
             {
               NoGrad no_grad;
               loss(3);
             }
             first.backward();
             second.backward();
             const auto found = gradients_of(model);
             for (size_t i = 0; i < expected.size(); ++i) {
               for (size_t j = 0; j < expected[i].size(); ++j) {
                 ASSERT_NEAR(found[i][j], expected[i][j], 1e-5 * (1 + std::abs(expected[i][j])));
               }
             }
           });
}

/// Parameters that stay unsharded between uses are gathered after each update, and only then.
TEST(Strategies, GatherWholeParametersOnceAnUpdate) {
  for (const char* name : {"zero1", "zero2"}) {
    on_llama({{"dp", 4}}, {.strategy = Strategy::named(name)},
             [&](TransformerModel& model, const DeviceMesh& mesh) {
               AdamW optimizer(model.named_parameters(), {.learning_rate = 1e-2});
               const auto evaluate = [&] {
                 NoGrad no_grad;
                 const int64_t before = mesh.traffic().bytes;
                 const int64_t implicit = engine_statistics().implicit_bytes;
                 const Tensor loss = model.loss(batch_of(mesh, 4, 1), batch_of(mesh, 4, 2));
                 const int64_t moved = mesh.traffic().bytes - before;
                 const int64_t others = engine_statistics().implicit_bytes - implicit;
                 return std::pair(loss.full_tensor().item(), moved - others);
               };
               const auto [first, gathered] = evaluate();
               EXPECT_GT(gathered, 0);
               EXPECT_EQ(evaluate(), std::pair(first, int64_t{0}));
               model.loss(batch_of(mesh, 4, 1), batch_of(mesh, 4, 2)).backward();
               EXPECT_EQ(evaluate(), std::pair(first, int64_t{0}));
               optimizer.step();
               const auto [after, again] = evaluate();
               EXPECT_LT(after, first);
               EXPECT_EQ(again, gathered);
               {
                 NoGrad no_grad;
                 for (const ParameterPtr& p : model.parameters()) fill_(p->value(), 0);
               }
               EXPECT_NEAR(evaluate().first, std::log(37), 1e-5);
             });
  }
}

/// An update between forward and backward is noticed, whether unsharded parameters were kept or
/// not.
TEST(Strategies, NoticeUpdatesBeforeBackward) {
  for (const char* name : {"full_shard", "zero1", "ddp"}) {
    for (int ranks : {1, 3}) {
      on_llama(
          {{"dp", ranks}}, {.strategy = Strategy::named(name)},
          [&](TransformerModel& model, const DeviceMesh& mesh) {
            AdamW optimizer(model.named_parameters());
            const auto loss = [&] {
              return model.loss(batch_of(mesh, 4, 1), batch_of(mesh, 4, 2));
            };
            loss().backward();
            const Tensor late = loss();
            optimizer.step();
            const std::string message = error_of([&] { late.backward(); });
            EXPECT_TRUE(has(message, "was changed in place after forward, expected its values"));
            optimizer.zero_grad();
            loss().backward();
          });
    }
  }
}

/// Sums that are local to one rank are not yet gradients.
TEST(Strategies, NoOptimizerTakesGradientsThatWaitForTheSync) {
  for (const char* name : {"zero1", "ddp"}) {
    on_llama({{"dp", 2}}, {.strategy = Strategy::named(name)},
             [&](TransformerModel& model, const DeviceMesh& mesh) {
               AdamW optimizer(model.named_parameters());
               // Also after the optimizer has found its runs of contiguous memory.
               for (int step = 0; step < 2; ++step) {
                 model.loss(batch_of(mesh, 4, 1), batch_of(mesh, 4, 2)).backward();
                 optimizer.step();
                 optimizer.zero_grad();
               }
               NoSync hold(model);
               model.loss(batch_of(mesh, 4, 1), batch_of(mesh, 4, 2)).backward();
               const std::string message = error_of([&] { optimizer.step(); });
               EXPECT_TRUE(has(message, "has a gradient laid out as mesh(dp=2)[P(sum)]"));
             });
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, Strategies, testing::ValuesIn(all_ways()), name_of_way<Way>);

}  // namespace
}  // namespace weft

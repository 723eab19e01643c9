// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <optional>

#include "tests/fsdp/presets.h"
#include "tests/support/scratch.h"
#include "weft/autograd.h"
#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/fsdp.h"
#include "weft/layers.h"
#include "weft/ops.h"
#include "weft/ranks.h"

namespace weft {
namespace {

using Values = std::vector<std::vector<float>>;

/// A layer that is called twice, between two layers whose weights may be tied; `tail` may run in a
/// recomputed region.
class Twice final : public Module {
 public:
  explicit Twice(bool tied) {
    for (const char* name : {"first", "shared", "last"}) {
      layers_.push_back(add(name, std::make_shared<Linear>(5, 5, true, 0.5)));
    }
    if (tied) layers_[2]->set_parameter("weight", layers_[0]->own_parameters()[0].second);
  }
  Linear& shared() { return *layers_[1]; }
  /// Recomputes module "last" or "first" in backward.
  bool recomputes_last = false, recomputes_first = false;

 protected:
  Tensors forward(const Tensors& inputs) override {
    Tensor x = tanh(run(*layers_[0], inputs[0], recomputes_first));
    x = tanh((*layers_[1])(x));
    x = tanh((*layers_[1])(x));
    return {run(*layers_[2], x, recomputes_last)};
  }

 private:
  static Tensor run(Linear& layer, const Tensor& x, bool recomputes) {
    if (!recomputes) return layer(x);
    return recompute([&](const Tensors& inputs) { return layer(inputs); }, {x})[0];
  }

  std::vector<std::shared_ptr<Linear>> layers_;
};

/// The way in which a model is run.
struct Usage {
  const char* name;
  bool tied = false;
  /// The shared layer is recomputed in backward.
  bool recomputes = false;
  bool recomputes_last = false, recomputes_first = false;
  /// The loss has a penalty on the first weight; `penalty_alone`: the penalty has a separate
  /// backward after the step's.
  bool penalty = false, penalty_alone = false;
  /// The shared layer is a param group.
  bool shards_shared = true;
};

Tensor penalty_of(Module& model) { return sum(square(model.parameters()[0]->tensor())) * 3.0; }

Values gradients_of(const Usage& run, const DeviceMesh& mesh, const FullyShardOptions* options,
                    int micro_steps) {
  manual_seed(5);
  Twice model(run.tied);
  if (options && run.shards_shared) fully_shard(model.shared(), mesh, *options);
  if (options) fully_shard(model, mesh, *options);
  model.materialize();
  model.shared().set_recompute(run.recomputes);
  model.recomputes_last = run.recomputes_last;
  model.recomputes_first = run.recomputes_first;
  std::vector<double> values;
  for (int i = 0; i < 7 * 5; ++i) values.push_back(0.3 * ((i * 7) % 11) - 1);
  Tensor x = from_values(values, {7, 5});
  if (options) x = distribute(x, mesh, {Shard(0)});
  Values gradients;
  for (int step = 0; step < 3; ++step) {
    for (const ParameterPtr& p : model.parameters()) p->clear_grad();
    for (int micro = 0; micro < micro_steps; ++micro) {
      std::optional<NoSync> hold;
      if (options) hold.emplace(model, micro + 1 < micro_steps);
      Tensor loss = sum(square(model(x)));
      if (run.penalty) loss = loss + penalty_of(model);
      loss.backward();
      if (run.penalty_alone) penalty_of(model).backward();
    }
    if (options) {
      const FullyShardBytes predicted = predicted_bytes(model, micro_steps);
      EXPECT_EQ(measured_bytes(model).gradients, predicted.gradients);
      const bool gathers = options->strategy.rows == Strategy::full_shard().rows;
      if (step == 2 && gathers && !run.penalty_alone) {
        EXPECT_EQ(measured_bytes(model).received, predicted.received);
        EXPECT_EQ(measured_bytes(model).buffers, predicted.buffers);
      }
    }
    gradients.clear();
    for (const ParameterPtr& p : model.parameters()) {
      const Tensor gradient = p->grad();
      gradients.push_back((options ? gradient.full_tensor() : gradient).to_vector<float>());
    }
  }
  return gradients;
}

std::vector<Preset> presets() {
  return presets_and({"buckets", {.strategy = Strategy::ddp(), .bucket_bytes = 64}});
}

void expect_those_of_a_plain_model(const Usage& run, const std::vector<Preset>& sharded) {
  for (int micro_steps : {1, 2}) {
    const Values plain = gradients_of(run, {}, nullptr, micro_steps);
    for (const Preset& preset : sharded) {
      for (int ranks : {1, 2, 3}) {
        run_ranks(ranks, [&](Communicator world) {
          DeviceMesh mesh(world, {{"dp", world.size()}});
          const Values found = gradients_of(run, mesh, &preset.options, micro_steps);
          ASSERT_EQ(found.size(), plain.size());
          for (size_t p = 0; p < plain.size(); ++p) {
            for (size_t j = 0; j < plain[p].size(); ++j) {
              EXPECT_NEAR(found[p][j], plain[p][j], 2e-4)
                  << run.name << ", " << preset.name << " on " << ranks << ", " << micro_steps
                  << " micro-steps, parameter " << p << ", " << j;
            }
          }
        });
      }
    }
  }
}

/// The penalty's gradient arrives before that of any module's output.
TEST(Gradients, HoldAPenaltyOnAParameter) {
  expect_those_of_a_plain_model({.name = "penalty", .penalty = true}, presets());
}

/// The presets are those that keep unsharded parameters between steps.
TEST(Gradients, HoldAPenaltyThatComesAlone) {
  std::vector<Preset> keeping = presets();
  keeping.erase(keeping.begin(), keeping.begin() + 2);
  expect_those_of_a_plain_model({.name = "penalty alone", .penalty_alone = true}, keeping);
}

TEST(Gradients, HoldAllRunsOfARecomputedLayer) {
  expect_those_of_a_plain_model({.name = "recomputed", .recomputes = true}, presets());
}

TEST(Gradients, HoldATieAcrossACheckpoint) {
  for (bool recomputes : {false, true}) {
    for (bool last : {false, true}) {
      Usage run{.name = "tied", .tied = true, .recomputes = recomputes};
      (last ? run.recomputes_last : run.recomputes_first) = true;
      expect_those_of_a_plain_model(run, presets());
    }
  }
}

/// One weight, used three times, the last time within a recomputation: it is read after its group's
/// gradients seemed complete.
class Thrice final : public Module {
 public:
  Thrice() { weight_ = declare("weight", {5, 5}, normal_values(0.5)); }

 protected:
  Tensors forward(const Tensors& inputs) override {
    const Tensor x = tanh(linear(inputs[0], weight_->tensor()));
    return recompute([this](const Tensors& again) { return Tensors{apply(again[0])}; }, {apply(x)});
  }

 private:
  Tensor apply(const Tensor& x) const { return tanh(linear(x, weight_->tensor())); }
  ParameterPtr weight_;
};

/// The weight is in the outermost param group, and in a part.
TEST(Gradients, HoldAWeightThatIsReadAgain) {
  for (bool is_part : {false, true}) {
    for (const Preset& preset : presets()) {
      std::vector<float> found[2];
      for (int ranks : {1, 3}) {
        run_ranks(ranks, [&](Communicator world) {
          manual_seed(1);
          DeviceMesh mesh(world, {{"dp", world.size()}});
          Sequential model;
          model.append(std::make_shared<Thrice>());
          if (is_part) fully_shard(*model.children()[0].second, mesh, preset.options);
          fully_shard(model, mesh, preset.options);
          model.materialize();
          const Tensor x = full({4, 5}, 0.7, {f32, cpu, Sharding(mesh, {Shard(0)})});
          for (int step = 0; step < 2; ++step) sum(square(model(x))).backward();
          const auto gradient = model.parameters()[0]->grad().full_tensor().to_vector<float>();
          if (world.rank() == 0) found[ranks > 1] = gradient;
        });
      }
      for (size_t j = 0; j < found[0].size(); ++j) {
        EXPECT_NEAR(found[0][j], found[1][j], 1e-4) << preset.name << ", " << j;
      }
    }
  }
}

}  // namespace
}  // namespace weft

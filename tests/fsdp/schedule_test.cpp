// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/collected_warnings.h"
#include "tests/support/scratch.h"
#include "weft/autograd.h"
#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/tape.h"
#include "weft/fsdp.h"
#include "weft/layers.h"
#include "weft/ops.h"
#include "weft/ranks.h"

namespace weft {
namespace {

/// Runs its layers in a variable order, or skips one.
class Chain final : public Module {
 public:
  explicit Chain(int layers) {
    for (int i = 0; i < layers; ++i) {
      layers_.push_back(add(concat("layer", i), std::make_shared<Linear>(4, 4)));
      order.push_back(i);
    }
  }
  std::vector<int> order;
  const std::vector<std::shared_ptr<Linear>>& layers() const { return layers_; }

 protected:
  Tensors forward(const Tensors& inputs) override {
    Tensor x = inputs[0];
    for (int i : order) x = (*layers_[static_cast<size_t>(i)])(x);
    return {x};
  }

 private:
  std::vector<std::shared_ptr<Linear>> layers_;
};

void shard(Chain& chain, const DeviceMesh& mesh) {
  for (const auto& layer : chain.layers()) fully_shard(*layer, mesh);
  fully_shard(chain, mesh);
  chain.materialize();
}

Tensor input(const DeviceMesh& mesh) {
  return ones({4, 4}, {DType::f32, cpu, Sharding(mesh, {Shard(0)})});
}

/// Runs `body` on the ranks, with a sharded chain.
void on_chain(int ranks, int layers,
              const std::function<void(Chain& chain, const DeviceMesh& mesh)>& body) {
  run_ranks(ranks, [&](Communicator world) {
    const DeviceMesh mesh(world, {{"dp", ranks}});
    Chain chain(layers);
    shard(chain, mesh);
    body(chain, mesh);
  });
}

TEST(Schedule, IsPrintedBeforeItRuns) {
  on_chain(2, 2, [](Chain& chain, const DeviceMesh&) {
    std::string text = explain_schedule(chain);
    EXPECT_EQ(text.substr(0, text.find("backward")),
              "forward   unshard layer0 over dp, buffer 0, 32 bytes\n"
              "forward   compute the root\n"
              "forward   wait layer0, buffer 0\n"
              "forward   unshard layer1 over dp, buffer 1, 32 bytes\n"
              "forward   compute layer0\n"
              "forward   reshard layer0, buffer 0\n"
              "forward   wait layer1, buffer 1\n"
              "forward   compute layer1\n"
              "forward   reshard layer1, buffer 1\n");
  });
}

TEST(Schedule, IsThatOfTheStepBefore) {
  on_chain(2, 3, [](Chain& chain, const DeviceMesh& mesh) {
    std::string expected = explain_schedule(chain);
    sum((chain)(input(mesh))).backward();
    EXPECT_EQ(explain_schedule(chain), expected);
  });
}

/// The gradients of all layers after a step in which they run in `order`.
std::vector<std::vector<float>> gradients_in_order(Chain& chain, const DeviceMesh& mesh,
                                                   std::vector<int> order) {
  chain.order = std::move(order);
  for (const ParameterPtr& parameter : chain.parameters()) parameter->clear_grad();
  sum(chain(input(mesh))).backward();
  std::vector<std::vector<float>> gradients;
  for (const ParameterPtr& parameter : chain.parameters()) {
    gradients.push_back(parameter->grad().full_tensor().to_vector<float>());
  }
  return gradients;
}

TEST(Schedule, SurvivesAnotherOrderAndUnusedUnits) {
  for (int ranks : {1, 2, 3}) {
    std::vector<std::vector<std::vector<float>>> fresh, kept;
    const CollectedWarnings warnings;
    on_chain(ranks, 3, [&](Chain& chain, const DeviceMesh& mesh) {
      std::vector<std::vector<int>> orders = {{0, 1, 2}, {0, 1, 2}, {2, 0, 1}, {2, 0, 1},
                                              {0, 2},    {0, 2},    {1, 1, 0}, {1, 1, 0}};
      for (const auto& order : orders) {
        auto gradients = gradients_in_order(chain, mesh, order);
        if (mesh.rank() == 0) kept.push_back(gradients);
      }
    });
    EXPECT_FALSE(warnings.sentences().empty());
    for (const std::string& sentence : warnings.sentences()) {
      EXPECT_TRUE(has(sentence, "ran in a different order than in the previous step"));
    }
    run_ranks(1, [&](Communicator world) {
      for (const auto& order :
           std::vector<std::vector<int>>{{0, 1, 2}, {2, 0, 1}, {0, 2}, {1, 1, 0}}) {
        manual_seed(0);
        DeviceMesh mesh(world, {{"dp", 1}});
        Chain chain(3);
        shard(chain, mesh);
        fresh.push_back(gradients_in_order(chain, mesh, order));
      }
    });
    for (size_t i = 0; i < kept.size(); ++i) {
      for (size_t p = 0; p < kept[i].size(); ++p) {
        for (size_t j = 0; j < kept[i][p].size(); ++j) {
          EXPECT_NEAR(kept[i][p][j], fresh[i / 2][p][j], 1e-5) << ranks << " ranks, step " << i;
        }
      }
    }
  }
}

/// A weight that two sharded layers share belongs to their common ancestor.
TEST(Schedule, MovesTiesToTheCommonAncestor) {
  std::vector<std::vector<float>> gradients[2];
  const CollectedWarnings warnings;
  for (int ranks : {1, 3}) {
    run_ranks(ranks, [&](Communicator world) {
      DeviceMesh mesh(world, {{"dp", world.size()}});
      Chain chain(3);
      chain.layers()[2]->set_parameter("weight", chain.layers()[0]->parameters()[0]);
      shard(chain, mesh);
      ASSERT_EQ(chain.parameters().size(), 2u);
      for (int step = 0; step < 2; ++step) {
        auto found = gradients_in_order(chain, mesh, {0, 1, 2});
        if (world.rank() == 0) gradients[ranks == 1 ? 0 : 1] = found;
      }
    });
  }
  const std::string moved =
      "fully_shard: parameter layer0.weight is also layer2.weight, so it is sharded with their "
      "common ancestor";
  EXPECT_EQ(warnings.sentences(), (std::multiset<std::string>{moved, moved}));
  ASSERT_EQ(gradients[0].size(), gradients[1].size());
  for (size_t p = 0; p < gradients[0].size(); ++p) {
    for (size_t j = 0; j < gradients[0][p].size(); ++j) {
      EXPECT_NEAR(gradients[0][p][j], gradients[1][p][j], 1e-5);
    }
  }
}

double weight_gradient_sum(const Chain& chain) {
  double total = 0;
  for (const ParameterPtr& parameter : chain.parameters()) {
    total += sum(parameter->grad()).full_tensor().item();
  }
  return total;
}

/// Backwards may run late, in a different order than forwards, and around a forward without
/// gradients.
TEST(Schedule, TakesBackwardsAsTheyCome) {
  for (int ranks : {1, 2, 3}) {
    on_chain(ranks, 2, [](Chain& chain, const DeviceMesh& mesh) {
      for (int step = 0; step < 3; ++step) {
        for (const ParameterPtr& parameter : chain.parameters()) parameter->clear_grad();
        sum(chain(input(mesh))).backward();
        const double once = weight_gradient_sum(chain);
        for (const ParameterPtr& parameter : chain.parameters()) parameter->clear_grad();
        Tensor first = sum(chain(input(mesh))), second = sum(chain(input(mesh)));
        {
          NoGrad no_grad;
          chain(input(mesh));
        }
        first.backward();
        second.backward();
        EXPECT_NEAR(weight_gradient_sum(chain), 2 * once, 1e-4 * std::abs(once));
      }
    });
  }
}

TEST(Schedule, SeesParametersThatChangedAfterAForward) {
  on_chain(2, 2, [](Chain& chain, const DeviceMesh& mesh) {
    chain(input(mesh));
    {
      NoGrad no_grad;
      for (const ParameterPtr& parameter : chain.parameters()) fill_(parameter->value(), 0);
    }
    EXPECT_EQ(sum(chain(input(mesh))).full_tensor().item(), 0);
  });
}

TEST(Schedule, GoesOnAfterABackwardThatThrew) {
  on_chain(2, 3, [](Chain& chain, const DeviceMesh& mesh) {
    sum(chain(input(mesh))).backward();
    const double expected = weight_gradient_sum(chain);
    chain.order = {0, 1};
    Tensor middle = chain(input(mesh));
    Tensors broken = record("broken", {middle}, {middle}, [](const Tensors&) -> Tensors {
      throw std::runtime_error("no gradient today");
    });
    chain.order = {0, 1, 2};
    Tensor last = sum(broken[0]);
    EXPECT_EQ(error_of<std::runtime_error>([&] { last.backward(); }), "no gradient today");
    for (const ParameterPtr& parameter : chain.parameters()) parameter->clear_grad();
    sum(chain(input(mesh))).backward();
    EXPECT_NEAR(weight_gradient_sum(chain), expected, 1e-5 * std::abs(expected));
  });
}

/// Uses parts of one weight, as fused projections do.
class Parts final : public Module {
 public:
  Parts() { weight_ = declare("weight", {6, 4}, normal_values(1)); }

 protected:
  Tensors forward(const Tensors& inputs) override {
    Tensor first = slice(weight_->tensor(), 0, 0, 2), rest = slice(weight_->tensor(), 0, 2, 6);
    return {cat({linear(inputs[0], first), linear(inputs[0], rest) * 2.0}, 1)};
  }

 private:
  ParameterPtr weight_;
};

TEST(Schedule, SumsGradientsOfPartsOfAWeight) {
  for (int ranks : {1, 3}) {
    run_ranks(ranks, [](Communicator world) {
      DeviceMesh mesh(world, {{"dp", world.size()}});
      Parts parts;
      fully_shard(parts, mesh);
      parts.materialize();
      sum(parts(ones({6, 4}, {DType::f32, cpu, Sharding(mesh, {Shard(0)})}))).backward();
      std::vector<float> gradient = parts.parameters()[0]->grad().full_tensor().to_vector<float>();
      for (size_t i = 0; i < gradient.size(); ++i) EXPECT_EQ(gradient[i], i < 8 ? 6 : 12);
    });
  }
}

TEST(Schedule, OneRankCallsNoCollective) {
  on_chain(1, 3, [](Chain& chain, const DeviceMesh& mesh) {
    int64_t before = mesh.traffic().collectives;
    sum(chain(input(mesh))).backward();
    EXPECT_EQ(mesh.traffic().collectives, before);
    EXPECT_EQ(measured_bytes(chain).buffers, 0);
  });
}

/// Unsharded parameters that only frozen parameters keep are freed after their module's backward.
TEST(Schedule, FreesFrozenParametersOnTheWay) {
  run_ranks(2, [](Communicator world) {
    DeviceMesh mesh(world, {{"dp", 2}});
    Chain chain(6);
    for (const auto& layer : chain.layers()) {
      layer->own_parameters()[0].second->set_trainable(false);
    }
    chain.layers()[0]->own_parameters()[0].second->set_trainable(true);
    shard(chain, mesh);
    for (int step = 0; step < 2; ++step) sum(chain(input(mesh))).backward();
    const FullyShardBytes bytes = measured_bytes(chain);
    EXPECT_EQ(bytes.gradients, 8 * 4);
    EXPECT_EQ(bytes.buffers, 2 * 16 * 4);
    EXPECT_EQ(bytes.buffers, predicted_bytes(chain).buffers);
  });
}

TEST(Schedule, NamesAParameterThatIsNotGathered) {
  on_chain(2, 1, [](Chain& chain, const DeviceMesh& mesh) {
    std::string message = error_of<std::exception>(
        [&] { linear(input(mesh), chain.layers()[0]->parameters()[0]->tensor()); });
    EXPECT_NE(message.find("layer0.weight"), std::string::npos) << message;
  });
}

TEST(Schedule, RefusesWhatItCannotShard) {
  run_ranks(4, [](Communicator world) {
    DeviceMesh grid(world, {{"dp", 2}, {"tp", 2}});
    DeviceMesh mesh(world, {{"dp", 4}});
    Chain chain(1);
    EXPECT_EQ(error_of([&] { fully_shard(chain, mesh, {.strategy = Strategy::hsdp()}); }),
              "fully_shard: number of rows of strategy \"hsdp\" is 2, expected 1, one per axis of "
              "mesh(dp=4)");
    EXPECT_EQ(error_of([&] { Strategy::named("zero4"); }),
              "strategy: name is \"zero4\", expected one of full_shard, zero2, zero1, ddp, hsdp");
    Strategy row{"mine", {{Replicate(), Shard(0), Replicate()}}};
    EXPECT_EQ(error_of([&] { fully_shard(chain, mesh, {.strategy = row}); }),
              "fully_shard: parameter / gradient / state of axis \"dp\" is R / S(0) / R, expected "
              "R / P(sum) / R if the state is R");
    Strategy crossed{"mine", {{Replicate(), Shard(0), Shard(0)}, {Shard(0), Partial(), Shard(0)}}};
    EXPECT_EQ(error_of([&] { fully_shard(chain, grid, {.strategy = crossed}); }),
              "fully_shard: axes \"tp\" and \"dp\" of mesh(dp=2, tp=2) shard parameters and "
              "gradients in opposite orders, expected one order");
    EXPECT_EQ(error_of([&] { fully_shard(chain, grid, {.reshard_after_forward = "host"}); }),
              "fully_shard: reshard_after_forward is \"host\", expected an axis of mesh(dp=2, "
              "tp=2), whose axes that shard the state must all shard parameters");
    EXPECT_EQ(error_of([&] { fully_shard(chain, mesh, {.ignored = {"layer7.weight"}}); }),
              "fully_shard: ignored parameter \"layer7.weight\" does not exist");
    EXPECT_EQ(error_of([&] { predicted_bytes(chain); }),
              "predicted_bytes: the model is not sharded, expected one after fully_shard");
    fully_shard(chain, mesh);
    EXPECT_EQ(error_of([&] { fully_shard(chain, mesh); }),
              "fully_shard: the module is sharded already, expected a call once");
    const char* const inner =
        "fully_shard: module \"layer0\" is part of a module that is sharded already, expected one "
        "that is not; shard inner modules before outer ones";
    EXPECT_EQ(error_of([&] { fully_shard(*chain.layers()[0], mesh); }), inner);
    chain.materialize();
    EXPECT_EQ(error_of([&] { fully_shard(*chain.layers()[0], mesh["dp"]); }), inner);
    Linear alone(2, 2);
    EXPECT_EQ(error_of([&] {
                fully_shard({&alone, &alone}, mesh);
              }),
              "fully_shard: the module is sharded already, expected a call once");
  });
}

}  // namespace
}  // namespace weft

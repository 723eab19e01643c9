// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/fsdp/chain.h"
#include "tests/support/scratch.h"
#include "weft/autograd.h"
#include "weft/error.h"
#include "weft/optimizers.h"
#include "weft/ranks.h"

namespace weft {
namespace {

/// Calls `body(mesh, name)` on 1, 2, 3 and 4 ranks.
void on_ranks(const std::function<void(const DeviceMesh& mesh, const std::string& name)>& body) {
  for (int ranks : {1, 2, 3, 4}) {
    run_ranks(ranks, [&](Communicator world) {
      body(DeviceMesh(world, {{"dp", ranks}}), concat("on ", ranks));
    });
  }
}

/// Adds `step` gradients to what the parameters have, and returns them.
Values after_backward_of(Module& module, const DeviceMesh& mesh, int step) {
  for (const ParameterPtr& p : module.parameters()) p->clear_grad();
  sum(square(module(rows_of(mesh, step)))).backward();
  return gradients_of(module);
}

/// Steps between which parameters are frozen and thawed, with an optimizer.
Values frozen_and_thawed(const DeviceMesh& mesh, const Strategy& strategy) {
  manual_seed(3);
  Chain chain;
  if (mesh) shard(chain, mesh, {.strategy = strategy});
  chain.materialize();
  AdamW optimizer(chain.named_parameters(), {.learning_rate = 0.1});
  const std::vector<ParameterPtr> all = chain.parameters();
  const std::vector<std::vector<size_t>> frozen = {{}, {2}, {2, 3}, {0, 1, 2, 3}, {0}, {}};
  for (int step = 0; step < 6; ++step) {
    for (const ParameterPtr& p : all) p->clear_grad();
    for (size_t i = 0; i < all.size(); ++i) {
      const auto& now = frozen[static_cast<size_t>(step)];
      const bool freezes = std::find(now.begin(), now.end(), i) != now.end();
      if (all[i]->is_trainable() == freezes) all[i]->set_trainable(!freezes);
    }
    sum(square(chain(rows_of(mesh, step)))).backward();
    optimizer.step();
  }
  Values values;
  for (const ParameterPtr& p : all) {
    const Tensor value = p->value();
    values.push_back((mesh ? value.full_tensor() : value).to_vector<float>());
  }
  return values;
}

TEST(Changes, ParametersAreFrozenAndThawedBetweenSteps) {
  const Values expected = frozen_and_thawed({}, {});
  for (const char* strategy : {"full_shard", "zero2", "zero1", "ddp"}) {
    on_ranks([&](const DeviceMesh& mesh, const std::string& name) {
      expect_near(frozen_and_thawed(mesh, Strategy::named(strategy)), expected,
                  concat(strategy, ' ', name), 2e-4);
    });
  }
}

TEST(Changes, FreezingNeedsClearedGradients) {
  on_chain({{"dp", 2}}, {}, [](Chain& chain, const DeviceMesh& mesh) {
    sum(square(chain(rows_of(mesh, 0)))).backward();
    chain.layers[1]->parameters()[0]->set_trainable(false);
    EXPECT_EQ(error_of([&] { chain(rows_of(mesh, 0)); }),
              "fully_shard: parameter second.weight was frozen while parameter second.bias has a "
              "gradient, expected none; call zero_grad first");
    for (const ParameterPtr& p : chain.parameters()) p->clear_grad();
    sum(square(chain(rows_of(mesh, 0)))).backward();
    EXPECT_FALSE(chain.layers[1]->parameters()[0]->grad());
    EXPECT_EQ(measured_bytes(chain).received, predicted_bytes(chain).received);
  });
}

/// A model whose parts are found by name, so that they may be replaced.
class Parts final : public Module {
 public:
  Parts() {
    declare("scale", {5}, normal_values(0.5));
    adopt("a", std::make_shared<Linear>(5, 5, true, 0.5));
    adopt("b", std::make_shared<Linear>(5, 5, true, 0.5));
  }
  void add_shift() { declare("shift", {5}, normal_values(0.5)); }

 protected:
  Tensors forward(const Tensors& inputs) override {
    Tensor x = inputs[0];
    for (const auto& [name, child] : children()) x = tanh((*child)(x));
    for (const auto& [name, parameter] : own_parameters()) x = x * parameter->tensor();
    return {x};
  }
};

/// The gradients before and after changes of the model's members.
std::vector<Values> changed_members(const DeviceMesh& mesh, const Strategy& strategy) {
  manual_seed(3);
  Parts model;
  const FullyShardOptions options{.strategy = strategy};
  if (mesh) {
    fully_shard(model.module("a"), mesh, options);
    fully_shard(model, mesh, options);
  }
  model.materialize();
  std::vector<Values> all{after_backward_of(model, mesh, 0)};
  const auto run = [&] {
    for (const ParameterPtr& p : model.parameters()) p->clear_grad();
    for (int step = 0; step < 2; ++step) all.push_back(after_backward_of(model, mesh, step));
  };
  // A parameter of the group of the whole model, one of module "a", a new module, and fewer.
  model.add_shift();
  run();
  manual_seed(8);
  auto weight = std::make_shared<Parameter>(Shape{5, 5}, f32, normal_values(0.3));
  model.module("a").replace("weight", weight);
  run();
  model.replace("b", std::make_shared<Linear>(5, 5, false, 0.4));
  run();
  model.remove("scale");
  run();
  // A module leaves with its group.
  model.remove("a");
  run();
  return all;
}

TEST(Changes, MembersAreAddedReplacedAndRemoved) {
  const std::vector<Values> expected = changed_members({}, {});
  for (const char* strategy : {"full_shard", "zero2", "ddp"}) {
    on_ranks([&](const DeviceMesh& mesh, const std::string& name) {
      const std::vector<Values> found = changed_members(mesh, Strategy::named(strategy));
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < found.size(); ++i) {
        expect_near(found[i], expected[i], concat(strategy, ' ', name, ", step ", i));
      }
    });
  }
}

TEST(Changes, MembersChangeWithoutGradients) {
  run_ranks(2, [](Communicator world) {
    DeviceMesh mesh(world, {{"dp", 2}});
    Parts model;
    fully_shard(model.module("a"), mesh);
    fully_shard(model, mesh);
    model.materialize();
    after_backward_of(model, mesh, 0);
    const Values before = gradients_of(model);
    model.add_shift();
    const char* refusal =
        "fully_shard: the members of the model changed while parameter scale has a gradient, "
        "expected none; call zero_grad first";
    EXPECT_EQ(error_of([&] { model(rows_of(mesh, 1)); }), refusal);
    {
      const NoGrad no_grad;
      EXPECT_EQ(error_of([&] { model(rows_of(mesh, 1)); }), refusal);
    }
    model.remove("shift");
    expect_near(gradients_of(model), before, "after the refusal");
    model.add_shift();
    for (const auto& gradient : after_backward_of(model, mesh, 1)) EXPECT_FALSE(gradient.empty());
  });
}

TEST(Changes, AModuleThatLeavesIsAModelOfItsOwn) {
  run_ranks(2, [](Communicator world) {
    DeviceMesh mesh(world, {{"dp", 2}});
    Parts model;
    const std::shared_ptr<Module> part = model.children()[0].second;
    fully_shard(*part, mesh);
    fully_shard(model, mesh);
    after_backward_of(model, mesh, 0);
    model.remove("a");
    after_backward_of(model, mesh, 0);
    const Values alone = after_backward_of(*part, mesh, 0);
    EXPECT_EQ(alone[0].size(), 25u);
    EXPECT_GT(predicted_bytes(*part).received, 0);
  });
}

TEST(Changes, SeveralModulesAreOneGroup) {
  const Values expected = plain_gradients(2);
  for (const char* strategy : {"full_shard", "zero2", "zero1", "ddp"}) {
    on_ranks([&](const DeviceMesh& mesh, const std::string& name) {
      manual_seed(3);
      Chain chain;
      const FullyShardOptions options{.strategy = Strategy::named(strategy)};
      fully_shard({chain.layers[0].get(), chain.layers[2].get()}, mesh, options);
      fully_shard(chain, mesh, options);
      for (int micro = 0; micro < 2; ++micro) sum(square(chain(rows_of(mesh, micro)))).backward();
      expect_near(gradients_of(chain), expected, concat(strategy, ' ', name));
      EXPECT_EQ(measured_bytes(chain).gradients, predicted_bytes(chain).gradients);
      int unshards = 0;
      for (const ProgramStep& step : schedule_of(chain, {.training = false}).steps) {
        unshards += step.verb == "unshard";
      }
      const bool gathers = mesh.size() > 1 && std::string(strategy) == "full_shard";
      if (gathers) {
        EXPECT_EQ(unshards, 2);
      }
    });
  }
}

/// The modules are the outermost ones: a gradient that passes several of them is divided once.
TEST(Changes, SeveralModulesDivideGradientsOnce) {
  const Values expected = plain_gradients(2, 4);
  on_ranks([&](const DeviceMesh& mesh, const std::string& name) {
    manual_seed(3);
    Chain chain;
    const FullyShardOptions options{.gradient_divide_factor = 4};
    fully_shard({chain.layers[0].get(), chain.layers[1].get(), chain.layers[2].get()}, mesh,
                options);
    chain.materialize();
    for (int micro = 0; micro < 2; ++micro) sum(square(chain(rows_of(mesh, micro)))).backward();
    expect_near(gradients_of(chain), expected, name);
  });
}

/// Only one of the modules runs in a forward.
TEST(Changes, SomeModulesOfAGroupRun) {
  run_ranks(2, [](Communicator world) {
    DeviceMesh mesh(world, {{"dp", 2}});
    Chain chain;
    Linear spare(5, 5);
    fully_shard({chain.layers[0].get(), &spare}, mesh);
    fully_shard(chain, mesh);
    for (int step = 0; step < 2; ++step) {
      sum(square(chain(rows_of(mesh, step)))).backward();
      EXPECT_FALSE(chain.parameters()[0]->tensor().storage()->is_bound());
    }
  });
}

/// The head's group runs in part with the model, then for each part of the loss alone.
class Chunked final : public Module {
 public:
  Chunked() {
    body = add("body", std::make_shared<Linear>(5, 5, true, 0.5));
    norm = add("norm", std::make_shared<RMSNorm>(5));
    head = add("head", std::make_shared<Linear>(5, 3, true, 0.5));
  }
  std::shared_ptr<Linear> body, head;
  std::shared_ptr<RMSNorm> norm;

 protected:
  Tensors forward(const Tensors& inputs) override { return {(*norm)((*body)(inputs[0]))}; }
};

Values chunked_gradients(const DeviceMesh& mesh, bool keeps) {
  manual_seed(3);
  Chunked model;
  if (mesh) {
    fully_shard({model.norm.get(), model.head.get()}, mesh);
    fully_shard(model, mesh);
  }
  model.materialize();
  for (int step = 0; step < 2; ++step) {
    for (const ParameterPtr& p : model.parameters()) p->clear_grad();
    const Tensor hidden = model(rows_of(mesh, step));
    const auto keep = [&](bool reshards) {
      if (!mesh || !keeps) return;
      FsdpModule(*model.head).set_reshard_after_forward(reshards);
      FsdpModule(*model.head).set_reshard_after_backward(reshards);
    };
    keep(false);
    Tensor gradient;
    for (int part = 0; part < 3; ++part) {
      Tensor again = hidden.detach();
      again.set_requires_grad();
      mul(sum(square((*model.head)(again))), 1.0 + part).backward();
      gradient = gradient ? gradient + again.grad() : again.grad();
    }
    keep(true);
    if (mesh) FsdpModule(*model.head).reshard();
    backward({hidden}, {gradient});
  }
  return gradients_of(model);
}

TEST(Changes, AGroupRunsInPartAndThenAlone) {
  const Values expected = chunked_gradients({}, false);
  for (bool keeps : {false, true}) {
    on_ranks([&](const DeviceMesh& mesh, const std::string& name) {
      expect_near(chunked_gradients(mesh, keeps), expected, name, 1e-4);
    });
  }
}

/// Backward of two forwards, of which each runs all modules.
TEST(Changes, TwoForwardsShareABackward) {
  const auto gradients = [](const DeviceMesh& mesh, bool recomputes) {
    manual_seed(3);
    Chain chain;
    chain.layers[1]->set_recompute(recomputes);
    if (mesh) {
      fully_shard({chain.layers[0].get(), chain.layers[2].get()}, mesh);
      fully_shard(*chain.layers[1], mesh);
      fully_shard(chain, mesh);
    }
    const Tensor one = chain(rows_of(mesh, 0)), other = chain(rows_of(mesh, 1));
    square(sum(one) - sum(other)).backward();
    return gradients_of(chain);
  };
  const Values expected = gradients({}, false);
  for (bool recomputes : {false, true}) {
    on_ranks([&](const DeviceMesh& mesh, const std::string& name) {
      expect_near(gradients(mesh, recomputes), expected, name, 1e-4);
    });
  }
}

/// A weight times itself.
class Squared final : public Module {
 public:
  Squared() { weight_ = declare("weight", {5, 5}, normal_values(0.5)); }

 protected:
  Tensors forward(const Tensors&) override {
    return {matmul(weight_->tensor(), weight_->tensor())};
  }

 private:
  ParameterPtr weight_;
};

TEST(Changes, AModuleWithoutInputsIsSharded) {
  const auto gradients = [](const DeviceMesh& mesh) {
    manual_seed(3);
    Squared model;
    if (mesh) fully_shard(model, mesh);
    sum(model(Tensors())[0]).backward();
    return gradients_of(model);
  };
  const Values expected = gradients({});
  on_ranks([&](const DeviceMesh& mesh, const std::string& name) {
    Values found = gradients(mesh);
    // Each rank computes the whole loss, which is a Replicate and counts once.
    expect_near(found, expected, name);
  });
}

TEST(Changes, ParametersNameTheirMesh) {
  const Values expected = plain_gradients(2);
  run_ranks(4, [&](Communicator world) {
    manual_seed(3);
    const DeviceMesh mesh(world, {{"dp", 2}, {"ep", 2}});
    Chain chain;
    const FullyShardOptions options{.shard_placement_fn = [&](const NamedParameter& p) {
      return p.name() == "weight" ? ShardPlacement{.dim = 1, .mesh = mesh["dp"]} : ShardPlacement{};
    }};
    for (const auto& layer : chain.layers) fully_shard(*layer, mesh, options);
    fully_shard(chain, mesh);
    for (int micro = 0; micro < 2; ++micro) sum(square(chain(rows_of(mesh, micro)))).backward();
    expect_near(gradients_of(chain), expected, "mesh per parameter");
    const Sharding weight = chain.parameters()[0]->value().sharding();
    EXPECT_EQ(weight[0], Shard(1));
    EXPECT_TRUE(weight[1].is_replicate());
    EXPECT_EQ(chain.parameters()[1]->value().sharding()[1], Shard(0));
    EXPECT_EQ(measured_bytes(chain).received, predicted_bytes(chain).received);
    EXPECT_NE(
        error_of([&] { FsdpModule(*chain.layers[0]).set_all_reduce_hook([](const Tensor&) {}); }),
        "nothing");
  });
}

TEST(Changes, ParametersNameTheirStrategy) {
  const Values expected = plain_gradients(2);
  run_ranks(2, [&](Communicator world) {
    manual_seed(3);
    const DeviceMesh mesh(world, {{"dp", 2}});
    Chain chain;
    const FullyShardOptions options{.shard_placement_fn = [&](const NamedParameter& p) {
      return p.name() == "weight" ? ShardPlacement{.strategy = Strategy::ddp()} : ShardPlacement{};
    }};
    for (const auto& layer : chain.layers) fully_shard(*layer, mesh, options);
    fully_shard(chain, mesh);
    for (int micro = 0; micro < 2; ++micro) sum(square(chain(rows_of(mesh, micro)))).backward();
    expect_near(gradients_of(chain), expected, "strategy per parameter");
    EXPECT_TRUE(chain.parameters()[0]->value().sharding()[0].is_replicate());
    EXPECT_EQ(chain.parameters()[1]->value().sharding()[0], Shard(0));
  });
}

TEST(Changes, IgnoredParametersStayWhole) {
  const Values expected = plain_gradients(2);
  on_ranks([&](const DeviceMesh& mesh, const std::string& name) {
    manual_seed(3);
    Chain chain;
    const ParameterPtr bias = chain.layers[1]->parameters()[1];
    shard(chain, mesh, {.ignored_params = {bias}});
    for (int micro = 0; micro < 2; ++micro) sum(square(chain(rows_of(mesh, micro)))).backward();
    EXPECT_TRUE(bias->value().sharding()[0].is_replicate());
    expect_near(gradients_of(chain), expected, name);
  });
}

TEST(Changes, ANumberOfRanksIsKeptAfterForward) {
  const Values expected = plain_gradients(2);
  for (const auto& [ranks, kept] : {std::pair(4, 2), {6, 2}, {6, 3}, {8, 4}}) {
    run_ranks(ranks, [&, kept = kept](Communicator world) {
      manual_seed(3);
      const DeviceMesh mesh(world, {{"dp", world.size()}});
      Chain chain;
      shard(chain, mesh, {.reshard_after_forward = kept});
      for (int micro = 0; micro < 2; ++micro) sum(square(chain(rows_of(mesh, micro)))).backward();
      const std::string name = concat(kept, " of ", world.size());
      expect_near(gradients_of(chain), expected, name);
      const FullyShardBytes predicted = predicted_bytes(chain);
      EXPECT_EQ(measured_bytes(chain).received, predicted.received) << name;
      EXPECT_EQ(measured_bytes(chain).buffers, predicted.buffers) << name;
      Chain freeing;
      shard(freeing, mesh);
      EXPECT_LE(predicted.received, predicted_bytes(freeing).received) << name;
    });
  }
  run_ranks(4, [&](Communicator world) {
    const DeviceMesh mesh(world, {{"dp", 4}});
    for (int wrong : {0, 1, 3, 4, -2}) {
      Chain chain;
      EXPECT_NE(error_of([&] { fully_shard(chain, mesh, {.reshard_after_forward = wrong}); }),
                "nothing");
    }
  });
}

TEST(Changes, AxesAreTakenFromALargerMesh) {
  const Values expected = plain_gradients(2);
  on_chain(
      {{"across", 2}, {"within", 2}},
      {.dp_mesh_dims = DataParallelMeshDims{.shard = {"within"}, .replicate = {"across"}}},
      [&](Chain& chain, const DeviceMesh& mesh) {
        for (int micro = 0; micro < 2; ++micro) {
          const NoSync hold(chain, micro == 0);
          sum(square(chain(rows_of(mesh, micro)))).backward();
        }
        expect_near(gradients_of(chain), expected, "dp_mesh_dims");
        EXPECT_TRUE(chain.parameters()[0]->value().sharding()[0].is_replicate());
        Chain other;
        const auto error = [&](const DataParallelMeshDims& dims) {
          return error_of([&] { fully_shard(other, mesh, {.dp_mesh_dims = dims}); });
        };
        EXPECT_EQ(error({}), "fully_shard: dp_mesh_dims has no axes, expected shard or replicate");
        EXPECT_EQ(error({.shard = {"tp"}}), "mesh(across=2, within=2): axis \"tp\" does not exist");
      });
}

TEST(Changes, ANumberOfRanksIsKeptOfAnAxisOfALargerMesh) {
  const Values expected = plain_gradients(1);
  on_chain({{"dp", 4}, {"tp", 2}},
           {.reshard_after_forward = 2, .dp_mesh_dims = DataParallelMeshDims{.shard = {"dp"}}},
           [&](Chain& chain, const DeviceMesh& mesh) {
             sum(square(chain(rows_of(mesh["dp"], 0)))).backward();
             expect_near(gradients_of(chain), expected, "dp_mesh_dims");
             EXPECT_TRUE(chain.parameters()[0]->value().sharding()[1].is_replicate());
             EXPECT_EQ(measured_bytes(chain).received, predicted_bytes(chain).received);
           });
}

/// Sends a slice as bf16 halves of its rows, and the largest value.
class Halves final : public AllGatherExtension {
 public:
  Tensors fsdp_pre_all_gather(const Tensor& slice) override {
    ++sent;
    return {slice.to(bf16), max(abs(slice))};
  }
  void fsdp_post_all_gather(const Tensors& received, const Tensor& out) override {
    EXPECT_TRUE(received[0].shape() == out.shape());
    EXPECT_EQ(received[1].ndim(), 0);
    copy_(out, received[0].to(out.dtype()));
  }
  int sent = 0;
};

TEST(Changes, AnExtensionIsTheWiresFormat) {
  for (int dim : {0, 1}) {
    on_ranks([&](const DeviceMesh& mesh, const std::string& name) {
      const auto extension = std::make_shared<Halves>();
      const auto run = [&](const FullyShardOptions& options) {
        manual_seed(3);
        Chain chain;
        shard(chain, mesh, options);
        for (int micro = 0; micro < 2; ++micro) {
          sum(square(chain(rows_of(mesh, micro)))).backward();
        }
        EXPECT_EQ(measured_bytes(chain).received, predicted_bytes(chain).received) << name;
        EXPECT_EQ(measured_bytes(chain).buffers, predicted_bytes(chain).buffers) << name;
        return gradients_of(chain);
      };
      const auto dim_of = [&](const NamedParameter& p) {
        return p.parameter->shape().ndim() > dim ? dim : 0;
      };
      const Values rounded = run({.precision = {.gather = bf16}, .shard_dim = dim_of});
      const Values extended =
          run({.shard_dim = dim_of, .extension = [&](const NamedParameter&) { return extension; }});
      EXPECT_GT(extension->sent, 6);
      // On one rank weft casts nothing, but the extension does.
      if (mesh.size() > 1) expect_near(extended, rounded, name);
      if (mesh.size() == 1) expect_near(extended, rounded, name, 0.5);
    });
  }
}

}  // namespace
}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/context.h"
#include "weft/fsdp.h"
#include "weft/launch.h"
#include "weft/layers.h"
#include "weft/ops.h"
#include "weft/optimizers.h"
#include "weft/state_dict.h"

namespace weft {
namespace {

/// A linear layer whose outputs are scaled by a buffer; another counts calls.
class Scaled : public Module {
 public:
  Scaled() {
    linear_ = add("linear", std::make_shared<Linear>(4, 3, true));
    register_buffer("factor", Tensor::of({1.0, 2.0, 3.0}));
    register_buffer("calls", zeros({}), false);
  }

 protected:
  Tensors forward(const Tensors& inputs) override {
    add_(buffer("calls"), 1);
    return {(*linear_)(inputs[0]) * buffer("factor")};
  }

 private:
  std::shared_ptr<Linear> linear_;
};

std::vector<std::string> names_of(const std::vector<NamedBuffer>& buffers) {
  std::vector<std::string> names;
  for (const NamedBuffer& buffer : buffers) names.push_back(buffer.name);
  return names;
}

TEST(ModuleState, BuffersAreSavedUnlessTheyAreNotPersistent) {
  Sequential model;
  model.append(std::make_shared<Scaled>());
  EXPECT_EQ(names_of(model.named_buffers()), (std::vector<std::string>{"0.factor", "0.calls"}));
  model(numbers({2, 4}, 1));
  const StateDict state = state_dict(model);
  EXPECT_TRUE(state.tensors.contains("0.factor"));
  EXPECT_FALSE(state.tensors.contains("0.calls"));
  Sequential other;
  other.append(std::make_shared<Scaled>());
  fill_(model.children()[0].second->own_buffers()[0].value, 7);
  load_state_dict(other, state);
  EXPECT_EQ(whole_values(other.named_buffers()[0].value), (std::vector<double>{7, 7, 7}));
  EXPECT_EQ(model.named_buffers()[1].value.item(), 1);
}

TEST(ModuleState, BuffersMoveWithTheModule) {
  Scaled model;
  model.to(f64);
  EXPECT_EQ(model.named_buffers()[0].value.dtype(), f64);
  EXPECT_EQ(model.parameters()[0]->dtype(), f64);
  EXPECT_EQ(error_of([&] { model.to(i64); }), "to: dtype is i64, expected a floating one");
  EXPECT_EQ(error_of([&] { model.register_buffer("linear", ones({1})); }),
            "module: \"linear\" exists already, expected another name");
  EXPECT_EQ(error_of([&] { model.register_buffer("none", {}); }),
            "register_buffer: tensor of \"none\" is undefined, expected one");
  EXPECT_EQ(error_of([&] { model.set_buffer("none", ones({1})); }),
            "set_buffer: buffer \"none\" does not exist");
  EXPECT_TRUE(model.remove("factor"));
  EXPECT_EQ(names_of(model.named_buffers()), (std::vector<std::string>{"calls"}));
}

TEST(ModuleState, BuffersAreReplicatedWithAShardedModule) {
  run_ranks(3, [](Communicator world) {
    const DeviceMesh mesh(world, {{"dp", 3}});
    Scaled model;
    fully_shard(model, mesh);
    const Tensor x = distribute(numbers({6, 4}, 1), mesh, {Shard(0)});
    EXPECT_EQ(model(x).shape(), (Shape{6, 3}));
    for (const NamedBuffer& buffer : model.named_buffers()) {
      EXPECT_TRUE(buffer.value.is_sharded() && buffer.value.sharding().is_replicated());
    }
    EXPECT_EQ(model.named_buffers()[1].value.full_tensor().item(), 1);
    EXPECT_EQ(error_of([&] { model.to(bf16); }),
              "to: module \"\" is fully sharded, expected one before fully_shard; or give "
              "fully_shard a MixedPrecision");
  });
}

TEST(ModuleState, ModulesGetMemoryAtTheirFirstCall) {
  Linear called(4, 3, true), made(4, 3, true), planned(4, 3, true);
  Context::current().random = {.seed = 3};
  called(numbers({2, 4}, 1));
  Context::current().random = {.seed = 3};
  made.materialize();
  EXPECT_EQ(whole_values(called.parameters()[0]->value()),
            whole_values(made.parameters()[0]->value()));
  planned(empty({2, 4}, {.device = meta}));
  EXPECT_FALSE(planned.parameters()[0]->is_materialized());
}

TEST(ModuleState, ModulesInitialValuesFollowTheFanIn) {
  Linear layer(400, 300, true);
  layer.materialize();
  for (const ParameterPtr& parameter : layer.parameters()) {
    EXPECT_LE(max(abs(parameter->value())).item(), 1 / 20.0);
    EXPECT_NEAR(stddev(parameter->value()).item(), 1 / 20.0 / std::sqrt(3.0), 0.003);
  }
  LayerNorm plain(4, 1e-5, false), unbiased(4, 1e-5, true, false);
  EXPECT_TRUE(plain.parameters().empty());
  EXPECT_EQ(unbiased.parameters().size(), 1u);
  const Tensor x = numbers({3, 4}, 1);
  EXPECT_EQ(whole_values(plain(x)), whole_values(layer_norm(x, ones({4}), zeros({4}), 1e-5)));
  EXPECT_EQ(whole_values(unbiased(x)), whole_values(plain(x)));
}

TEST(ModuleState, OptimizersAreCopiedWithTheirState) {
  Linear model(4, 3), twin(4, 3);
  AdamW optimizer(model.named_parameters(), {.learning_rate = 0.1});
  const Tensor x = numbers({2, 4}, 1);
  const auto step = [&](Linear& of, Optimizer& by) {
    by.zero_grad();
    sum(of(x)).backward();
    by.step();
  };
  step(model, optimizer);
  load_state_dict(twin, state_dict(model));
  const auto copy = optimizer.copy_for(twin.parameters());
  step(model, optimizer);
  step(twin, *copy);
  EXPECT_EQ(whole_values(twin.parameters()[0]->value()),
            whole_values(model.parameters()[0]->value()));
  EXPECT_EQ(copy->steps(0), 2);
  EXPECT_EQ(error_of([&] { static_cast<void>(optimizer.copy_for({})); }),
            "copy_for: number of parameters is 0, expected 1");
}

}  // namespace
}  // namespace weft

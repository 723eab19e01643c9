// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>
#include <string>

#include "src/device/cuda/runtime.h"
#include "tests/cuda/trained_llama.h"
#include "weft/ops.h"
#include "weft/ranks.h"

namespace weft {

class DeviceOffload : public OnGpu {};

namespace {

struct Offloaded {
  bool parameters, gradients, state;
};

Recipe recipe_of(const Offloaded& what, std::vector<MeshAxis> axes, const Strategy& strategy) {
  Recipe made{.axes = std::move(axes)};
  made.options.strategy = strategy;
  made.options.offload = {what.parameters, what.gradients};
  made.offload_state = what.state;
  return made;
}

void expect_equal_losses(const Recipe& recipe) {
  const Recipe plain{.axes = recipe.axes, .micro_steps = recipe.micro_steps};
  expect_equal(losses_of(recipe, gpu), losses_of(plain, cpu));
}

constexpr Offloaded kAll{true, true, true};
constexpr Offloaded kEach[] = {
    {true, false, false}, {false, true, false}, {false, false, true}, {true, true, false}, kAll};

int64_t bytes_on(DeviceKind kind, Purpose purpose) {
  return memory_statistics(kind).by_purpose[static_cast<size_t>(purpose)].current;
}

}  // namespace

TEST_F(DeviceOffload, TrainsAsThoughNothingWere) {
  for (const Offloaded& what : kEach) {
    expect_equal_losses(recipe_of(what, {{"dp", 3}}, Strategy::full_shard()));
  }
}
TEST_F(DeviceOffload, OneRank) {
  expect_equal_losses(recipe_of(kAll, {{"dp", 1}}, Strategy::full_shard()));
}
TEST_F(DeviceOffload, MicroStepsOfAHybrid) {
  Recipe micro = recipe_of(kAll, {{"replicate", 2}, {"shard", 2}}, Strategy::hsdp());
  micro.micro_steps = 2;
  expect_equal_losses(micro);
}
TEST_F(DeviceOffload, MicroStepsOfReplicas) {
  Recipe micro = recipe_of(kAll, {{"dp", 2}}, Strategy::ddp());
  micro.micro_steps = 3;
  expect_equal_losses(micro);
}
static void expect_at_rest(const Offloaded& what, TransformerModel& model, AdamW& optimizer) {
  const DeviceKind parameters = what.parameters ? DeviceKind::cpu : DeviceKind::cuda;
  for (const auto& parameter : model.parameters()) {
    EXPECT_EQ(parameter->value().device().kind, parameters);
  }
  EXPECT_EQ(optimizer.state(0)[0].device().kind, what.state ? DeviceKind::cpu : DeviceKind::cuda);
  EXPECT_EQ(bytes_on(DeviceKind::cuda, Purpose::parameters) == 0, what.parameters);
  EXPECT_EQ(bytes_on(DeviceKind::cuda, Purpose::gradients) == 0, what.gradients);
  EXPECT_EQ(bytes_on(DeviceKind::cuda, Purpose::optimizer) == 0, what.state);
  EXPECT_EQ(bytes_on(DeviceKind::cpu, Purpose::parameters) > 0, what.parameters);
  EXPECT_EQ(bytes_on(DeviceKind::cpu, Purpose::gradients) > 0, what.gradients);
  EXPECT_EQ(bytes_on(DeviceKind::cpu, Purpose::optimizer) > 0, what.state);
  const FullyShardBytes predicted = predicted_bytes(model), measured = measured_bytes(model);
  EXPECT_EQ(predicted.parameters, measured.parameters);
  EXPECT_EQ(predicted.gradients, measured.gradients);
  EXPECT_EQ(predicted.buffers, measured.buffers);
  EXPECT_EQ(predicted.received, measured.received);
}

TEST_F(DeviceOffload, RestsWhereItIsSaidTo) {
  for (const Offloaded& what : kEach) {
    Recipe made = recipe_of(what, {{"dp", 2}}, Strategy::full_shard());
    made.look = [what](TransformerModel& model, AdamW& optimizer) {
      expect_at_rest(what, model, optimizer);
    };
    losses_of(made, gpu);
  }
}

/// Returns a parameter of `n` elements after three steps.
static Tensor updated(int64_t n, bool offloads) {
  manual_seed(3);
  auto parameter = std::make_shared<Parameter>(Shape{n}, f32, Parameter::Initializer());
  parameter->set_value(normal({n}).to(gpu));
  AdamW optimizer({{{"p"}, parameter}}, {.learning_rate = 1e-2, .offload = offloads});
  for (int step = 0; step < 3; ++step) {
    parameter->value().set_grad(normal({n}).to(gpu));
    optimizer.step();
  }
  return parameter->value().detach().to(cpu);
}

TEST_F(DeviceOffload, AnArrayOfManyPartsIsUpdatedWhole) {
  const int64_t n = (int64_t{3} << 20) + 5;
  const Tensor plain = updated(n, false), passed = updated(n, true);
  const float *here = plain.block().as<float>(), *there = passed.block().as<float>();
  for (int64_t i = 0; i < n; ++i) ASSERT_EQ(here[i], there[i]) << i;
  release_cached_memory();
}

/// Returns the parameters after three steps of Lamb, with values, gradients and state on the host.
static std::vector<std::vector<float>> updated_by_lamb(bool offloads) {
  std::vector<std::vector<float>> all;
  run_ranks(1, [&](Communicator world) {
    const DeviceMesh mesh(world, {{"dp", 1}});
    TransformerModel model(little_llama());
    FullyShardOptions options;
    options.offload = {offloads, offloads};
    shard(model, mesh, options);
    model.materialize(gpu);
    Lamb optimizer(model.named_parameters(), {.learning_rate = 1e-2, .offload = offloads});
    for (int step = 0; step < 3; ++step) {
      model.loss(batch_of(mesh, 4, step).to(gpu), batch_of(mesh, 4, step + 1).to(gpu)).backward();
      optimizer.step();
      optimizer.zero_grad();
    }
    for (const ParameterPtr& parameter : model.parameters()) {
      all.push_back(parameter->value().detach().to(cpu).to_vector<float>());
    }
  });
  return all;
}

TEST_F(DeviceOffload, LambUpdatesWhatIsOnTheHost) {
  const auto expected = updated_by_lamb(false), found = updated_by_lamb(true);
  ASSERT_EQ(expected.size(), found.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(expected[i].size(), found[i].size());
    for (size_t j = 0; j < found[i].size(); ++j) {
      EXPECT_NEAR(expected[i][j], found[i][j], 1e-4) << i << ", " << j;
    }
  }
}

TEST_F(DeviceOffload, TransfersNeedDenseTensorsOfOneShape) {
  const Tensor there = zeros({4, 6}, {.device = gpu});
  const Tensor here = tensor_in(Storage::allocate_pinned(96), 0, {4, 6}, f32);
  EXPECT_THROW(transfer_(here.t(), there.t()), std::invalid_argument);
  EXPECT_THROW(transfer_(here, zeros({6, 4}, {.device = gpu})), std::invalid_argument);
  EXPECT_THROW(transfer_(here, zeros({4, 6}, {.device = meta})), std::invalid_argument);
  EXPECT_THROW(transfer_(zeros({4, 6}, {.device = meta}), there), std::invalid_argument);
}

/// Delays each of the streams in turn.
TEST_F(DeviceOffload, DelaysOfAnyStreamChangeNothing) {
  for (const StreamRole role : {StreamRole::compute, StreamRole::gather, StreamRole::scatter}) {
    for (const bool offloads : {false, true}) {
      Recipe late{.axes = {{"dp", 3}}, .offload_state = offloads};
      late.options.offload = {offloads, offloads};
      const std::vector<double> expected = losses_of(late, cpu);
      late.disturb = [role] { cuda::delay(stream_for(gpu, role), 2000); };
      expect_equal(losses_of(late, gpu), expected);
    }
  }
}

}  // namespace weft

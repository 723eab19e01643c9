// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <cmath>
#include <memory>

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

std::vector<Preset> presets() {
  return presets_and({"half", {.precision = {.compute = bf16, .reduce = bf16}}});
}

/// Two layers of odd sizes, one with a bias.
std::shared_ptr<Sequential> two_layers() {
  auto model = std::make_shared<Sequential>();
  model->append(std::make_shared<Linear>(5, 5, true, 0.5));
  model->append(std::make_shared<Linear>(5, 3, false, 0.5));
  return model;
}

void shard(Module& model, const DeviceMesh& mesh, const FullyShardOptions& options) {
  for (const auto& [name, child] : model.children()) fully_shard(*child, mesh, options);
  fully_shard(model, mesh, options);
}

Tensor rows(const DeviceMesh& mesh, DType dtype = f32, Device device = cpu) {
  const Sharding cut(mesh, {Shard(0)});
  if (device == meta) return empty({7, 5}, {dtype, meta, cut});
  std::vector<double> values;
  for (int i = 0; i < 7 * 5; ++i) values.push_back(std::sin(i));
  return from_values(values, {7, 5}, {dtype, cpu, cut});
}

Tensor rows_for(const DeviceMesh& mesh, const Preset& preset, Device device = cpu) {
  return rows(mesh, preset.options.precision.compute.value_or(f32), device);
}

void set_all(Module& model, double value) {
  const NoGrad no_grad;
  for (const ParameterPtr& p : model.parameters()) fill_(p->value(), value);
}

std::vector<std::vector<float>> gradients_of(Module& model) {
  std::vector<std::vector<float>> gradients;
  for (const ParameterPtr& p : model.parameters()) {
    gradients.push_back(p->grad().full_tensor().to_vector<float>());
  }
  return gradients;
}

template <class F> void on_ranks(std::initializer_list<int> sizes, const F& f) {
  for (int ranks : sizes) {
    run_ranks(ranks, [&](Communicator world) {
      DeviceMesh mesh(world, {{"dp", world.size()}});
      for (const Preset& preset : presets()) {
        SCOPED_TRACE(concat(preset.name, " on ", ranks));
        f(mesh, preset);
      }
    });
  }
}

/// An f32 sum of bf16 parts has more bits than bf16 holds.
TEST(Lifetimes, ASumIsNotRoundedByTheNext) {
  on_ranks({3}, [](const DeviceMesh& mesh, Preset preset) {
    preset.options.precision = {.compute = bf16, .reduce = bf16};
    auto model = two_layers();
    shard(*model, mesh, preset.options);
    model->materialize();
    sum(square((*model)(rows_for(mesh, preset)))).backward();
    const auto once = gradients_of(*model);
    sum(square((*model)(rows_for(mesh, preset)))).backward();
    const auto twice = gradients_of(*model);
    for (size_t p = 0; p < once.size(); ++p) {
      for (size_t j = 0; j < once[p].size(); ++j) EXPECT_EQ(twice[p][j], 2 * once[p][j]);
    }
  });
}

TEST(Lifetimes, AGradientFromElsewhereIsNotLost) {
  on_ranks({1, 2}, [](const DeviceMesh& mesh, const Preset& preset) {
    auto model = two_layers();
    shard(*model, mesh, preset.options);
    model->materialize();
    const ParameterPtr weight = model->parameters()[0];
    sum(square((*model)(rows_for(mesh, preset)))).backward();
    const auto without = gradients_of(*model);
    for (const ParameterPtr& p : model->parameters()) p->clear_grad();
    const Tensor loss = sum(square((*model)(rows_for(mesh, preset))));
    (loss.to(f32) + sum(square(weight->value().to(f32)))).backward();
    const auto with = gradients_of(*model);
    const auto values = weight->value().detach().full_tensor().to(f32).to_vector<float>();
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(with[0][i], without[0][i] + 2 * values[i], 0.05 * std::abs(with[0][i]) + 1e-3);
    }
    EXPECT_EQ(with[1], without[1]);
    for (const ParameterPtr& p : model->parameters()) p->clear_grad();
    weight->value().set_grad(zeros_like(weight->value()));
    const Tensor next = sum(square((*model)(rows_for(mesh, preset))));
    EXPECT_EQ(error_of([&] { next.backward(); }),
              "fully_shard: gradient of parameter 0.weight is a tensor that was set by hand, or by "
              "a backward with create_graph, expected the one that a plain backward made; clear it "
              "before backward");
    for (const ParameterPtr& p : model->parameters()) p->clear_grad();
    sum(square((*model)(rows_for(mesh, preset)))).backward();
    const auto again = gradients_of(*model);
    for (const ParameterPtr& p : model->parameters()) p->clear_grad();
    sum(square((*model)(rows_for(mesh, preset)))).backward();
    EXPECT_EQ(gradients_of(*model), again);
  });
}

TEST(Lifetimes, AModelThatRanWithoutMemoryIsMade) {
  on_ranks({1, 2}, [](const DeviceMesh& mesh, const Preset& preset) {
    std::vector<std::vector<float>> found[2];
    int64_t buffers[2];
    for (bool first_without : {false, true}) {
      manual_seed(2);
      auto model = two_layers();
      shard(*model, mesh, preset.options);
      if (first_without) {
        model->materialize(meta);
        const NoSync hold(*model);
        sum(square((*model)(rows_for(mesh, preset, meta)))).backward();
        (*model)(rows_for(mesh, preset, meta));
      }
      model->materialize();
      for (int step = 0; step < 2; ++step) {
        sum(square((*model)(rows_for(mesh, preset)))).backward();
      }
      found[first_without] = gradients_of(*model);
      buffers[first_without] = measured_bytes(*model).buffers;
    }
    EXPECT_EQ(found[0], found[1]);
    EXPECT_EQ(buffers[0], buffers[1]);
  });
}

/// Also submodules can be called alone.
TEST(Lifetimes, APartCalledAloneSeesItsParameters) {
  on_ranks({1, 2}, [](const DeviceMesh& mesh, const Preset& preset) {
    auto model = two_layers();
    shard(*model, mesh, preset.options);
    model->materialize();
    Module& part = *model->children()[0].second;
    for (bool records : {false, true}) {
      for (double value : {1.0, 2.0, 0.0, 3.0}) {
        set_all(*model, value);
        Context::current().grad_enabled = records;
        const Tensor ones_in = ones_like(rows_for(mesh, preset));
        EXPECT_EQ(sum(part(ones_in).to(f32)).full_tensor().item(), 7 * 5 * 6 * value);
        Context::current().grad_enabled = true;
      }
    }
    sum(part(ones_like(rows_for(mesh, preset)))).backward();
    EXPECT_EQ(part.parameters()[1]->grad().full_tensor().to_vector<float>(),
              std::vector<float>(5, 7));
  });
}

TEST(Lifetimes, ABuildThatFailedFailsAgain) {
  run_ranks(2, [](Communicator world) {
    DeviceMesh mesh(world, {{"dp", 2}});
    auto model = two_layers();
    bool refuses = false;
    fully_shard(*model, mesh, {.shard_dim = [&](const NamedParameter& p) {
      return refuses && p.name() == "1.weight" ? 2 : 0;
    }});
    refuses = true;
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(error_of([&] { predicted_bytes(*model); }),
                "fully_shard: shard dimension of parameter 1.weight [3, 5] is 2, expected 0 to 1");
    }
    refuses = false;
    model->materialize();
    sum((*model)(rows(mesh))).backward();
    EXPECT_EQ(gradients_of(*model).size(), 3u);
  });
}

TEST(Lifetimes, ARefusedCallChangesNothing) {
  run_ranks(2, [](Communicator world) {
    DeviceMesh mesh(world, {{"dp", 2}});
    auto model = two_layers();
    model->materialize();
    EXPECT_EQ(error_of([&] {
                fully_shard(*model, mesh,
                            {.ignored = {"0.weight", "nine"}, .precision = {.buffers = bf16}});
              }),
              "fully_shard: ignored parameter \"nine\" does not exist");
    EXPECT_EQ(error_of([&] {
                fully_shard(*model, mesh, {.shard_dim = [](const NamedParameter&) { return 1; }});
              }),
              "fully_shard: shard dimension of parameter 0.bias [5] is 1, expected 0 to 0");
    EXPECT_EQ(model->parameters()[0]->dtype(), f32);
    EXPECT_FALSE(model->parameters()[0]->value().is_sharded());
    shard(*model, mesh, {});
    sum((*model)(rows(mesh))).backward();
    EXPECT_EQ(gradients_of(*model).size(), 3u);
  });
}

TEST(Lifetimes, ALossDoesNotOutliveItsModel) {
  const std::string gone =
      "fully_shard: the outermost sharded module no longer exists, expected it to exist until the "
      "backward of its loss has ended";
  on_ranks({1, 2}, [&](const DeviceMesh& mesh, const Preset& preset) {
    auto model = two_layers();
    shard(*model, mesh, preset.options);
    model->materialize();
    const auto part = model->children()[0].second;
    const Tensor loss = sum(square((*model)(rows_for(mesh, preset))));
    Tensor penalty;
    if (preset.options.strategy.name == "ddp") {
      penalty = sum(square(model->parameters()[0]->tensor()));
    }
    model.reset();
    EXPECT_EQ(error_of([&] { loss.backward(); }), gone);
    if (penalty) {
      EXPECT_EQ(error_of([&] { penalty.backward(); }), gone);
    }
    EXPECT_EQ(error_of([&] { (*part)(rows_for(mesh, preset)); }), gone);
  });
}

/// This happens when Python's garbage collector runs there, while a gather of the owner is pending.
TEST(Lifetimes, AModelMayEndOnAnotherThread) {
  std::array<std::shared_ptr<Sequential>, 2> models;
  std::barrier both(2);
  run_ranks(2, [&](Communicator world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    const auto own = static_cast<size_t>(world.rank());
    std::vector<std::vector<float>> expected;
    for (int round = 0; round < 4; ++round) {
      manual_seed(2);
      auto model = two_layers();
      shard(*model, mesh, {});
      model->materialize();
      for (int step = 0; step < 2; ++step) sum(square((*model)(rows(mesh)))).backward();
      if (round == 0) expected = gradients_of(*model);
      EXPECT_EQ(gradients_of(*model), expected) << round;
      model->children()[0].second->add_hooks(
          {.before = [](const Tensors&) -> Tensors { fail("stopped"); }, .after = {}});
      EXPECT_EQ(error_of([&] { (*model)(rows(mesh)); }), "stopped");
      models[own] = std::move(model);
      both.arrive_and_wait();
      models[1 - own] = nullptr;
      both.arrive_and_wait();
    }
  });
}

TEST(Lifetimes, AnEvaluationBetweenMicroStepsIsNotCounted) {
  on_ranks({2}, [](const DeviceMesh& mesh, const Preset& preset) {
    auto model = two_layers();
    shard(*model, mesh, preset.options);
    model->materialize();
    for (bool evaluates : {false, true}) {
      set_all(*model, 1);
      for (int micro = 0; micro < 2; ++micro) {
        const NoSync hold(*model, micro == 0);
        sum(square((*model)(rows_for(mesh, preset)))).backward();
        const NoGrad no_grad;
        if (evaluates && micro == 0) (*model)(rows_for(mesh, preset));
      }
      EXPECT_EQ(measured_bytes(*model).received, predicted_bytes(*model, 2).received);
      for (const ParameterPtr& p : model->parameters()) p->clear_grad();
    }
  });
}

}  // namespace
}  // namespace weft

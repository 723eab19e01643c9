// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "tests/fsdp/little_llama.h"
#include "tests/support/model_configs.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/autograd.h"
#include "weft/layers.h"
#include "weft/ops.h"
#include "weft/optimizers.h"
#include "weft/ranks.h"
#include "weft/state_dict.h"

namespace weft {
namespace {

/// Few rows, some fewer than ranks, odd sizes, and a param group that may be left out; weights 0
/// and 3 are one when tied.
class Odd final : public Module {
 public:
  explicit Odd(bool tied) {
    const std::pair<int64_t, int64_t> sizes[] = {{5, 7}, {7, 1}, {1, 5}, {5, 7}, {7, 7}};
    for (const auto& [in, out] : sizes) {
      layers_.push_back(
          add(concat("layer", layers_.size()), std::make_shared<Linear>(in, out, true)));
    }
    if (tied) layers_[3]->set_parameter("weight", layers_[0]->own_parameters()[0].second);
  }
  bool skips = false;
  const std::vector<std::shared_ptr<Linear>>& layers() const { return layers_; }

 protected:
  Tensors forward(const Tensors& inputs) override {
    Tensor x = inputs[0];
    for (size_t i = 0; i < layers_.size(); ++i) {
      if (!(skips && i == 4)) x = tanh((*layers_[i])(x));
    }
    return {x};
  }

 private:
  std::vector<std::shared_ptr<Linear>> layers_;
};

struct Case {
  const char* name;
  std::vector<MeshAxis> axes;
  FullyShardOptions options = {};
  /// Shards matrices along dim 1.
  bool across = false;
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

std::vector<Case> cases() {
  const Strategy late{"late", {{Replicate(), Partial(), Shard(0)}, {Shard(0), Shard(0), Shard(0)}}};
  std::vector<Case> all;
  for (bool across : {false, true}) {
    const auto add = [&](const char* name, std::vector<MeshAxis> axes, FullyShardOptions options) {
      if (across) {
        options.shard_dim = [](const NamedParameter& p) {
          return p.parameter->shape().ndim() > 1 ? 1 : 0;
        };
      }
      all.push_back({name, std::move(axes), std::move(options), across});
    };
    add("full_shard", {{"dp", 4}}, {});
    add("zero2", {{"dp", 3}}, {.strategy = Strategy::zero2()});
    add("zero1", {{"dp", 4}}, {.strategy = Strategy::zero1()});
    add("ddp", {{"dp", 3}}, {.strategy = Strategy::ddp(), .bucket_bytes = 100});
    add("hsdp", {{"r", 2}, {"s", 2}}, {.strategy = Strategy::hsdp()});
    add("late", {{"r", 2}, {"s", 2}}, {.strategy = late});
    add("kept", {{"r", 2}, {"s", 2}}, {.reshard_after_forward = "s"});
    add("half", {{"dp", 4}}, {.precision = {.compute = bf16}});
  }
  return all;
}

Tensor rows_over(const DeviceMesh& mesh) {
  std::vector<double> values;
  for (int i = 0; i < 6 * 5; ++i) values.push_back(std::sin(i));
  std::vector<Placement> cut(static_cast<size_t>(mesh.ndim()), Shard(0));
  return from_values(values, {6, 5},
                     {f32, cpu, Sharding(mesh, Placements(std::span<const Placement>(cut)))});
}

using Values = std::vector<std::vector<float>>;

/// Parameters after some steps, the last without a param group.
Values trained(const DeviceMesh& mesh, const Case& one, bool tied) {
  manual_seed(3);
  Odd model(tied);
  model.layers()[1]->own_parameters()[0].second->set_trainable(false);
  FullyShardOptions options = one.options;
  for (const auto& layer : model.layers()) fully_shard(*layer, mesh, options);
  fully_shard(model, mesh, options);
  const FullyShardBytes predicted = predicted_bytes(model);
  model.materialize();
  AdamW optimizer(model.named_parameters(), {.learning_rate = 0.05});
  for (int step = 0; step < 4; ++step) {
    model.skips = step == 3;
    const int64_t before = mesh.root().traffic().bytes;
    const int64_t implicit = engine_statistics().implicit_bytes;
    Tensor x = rows_over(mesh);
    if (one.options.precision.compute) x = x.to(bf16);
    sum(square(model(x))).backward();
    if (!model.skips) {
      const int64_t others = engine_statistics().implicit_bytes - implicit;
      EXPECT_EQ(mesh.root().traffic().bytes - before - others, predicted.received) << one.name;
      EXPECT_EQ(measured_bytes(model).copied, predicted.copied) << one.name;
    }
    EXPECT_FALSE(model.layers()[1]->own_parameters()[0].second->grad());
    optimizer.step();
    optimizer.zero_grad();
  }
  EXPECT_EQ(predicted.copied > 0, one.across && mesh.size() > 1 &&
                                      !one.options.strategy.rows.empty() &&
                                      one.options.strategy.name != "ddp");
  Values values;
  for (const ParameterPtr& p : model.parameters()) {
    values.push_back(p->value().full_tensor().to_vector<float>());
  }
  return values;
}

class Edges : public testing::TestWithParam<Case> {};

/// Empty slices, ties, frozen parameters and a param group left out, sharded along either dim.
TEST_P(Edges, TrainAsOneRank) {
  const Case& one = GetParam();
  for (bool tied : {false, true}) {
    Values alone, together;
    run_ranks(1, [&](Communicator world) {
      DeviceMesh mesh(world, {{"dp", 1}});
      alone = trained(mesh, {"alone", {}, {.precision = one.options.precision}}, tied);
    });
    run_ranks(ranks_of(one.axes), [&](Communicator world) {
      DeviceMesh mesh(world, one.axes);
      Values values = trained(mesh, one, tied);
      if (world.rank() == 0) together = std::move(values);
    });
    const double bound = one.options.precision.compute ? 2e-2 : 2e-5;
    ASSERT_EQ(alone.size(), together.size());
    for (size_t i = 0; i < alone.size(); ++i) {
      for (size_t j = 0; j < alone[i].size(); ++j) {
        EXPECT_NEAR(together[i][j], alone[i][j], bound) << "parameter " << i << ", " << j;
      }
    }
  }
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  return concat(info.param.name, info.param.across ? "_dim1" : "");
}

INSTANTIATE_TEST_SUITE_P(Cases, Edges, testing::ValuesIn(cases()), case_name);

/// Parameters that another axis of the root mesh has already sharded, unevenly and with empty
/// parts.
TEST(Edges, CutWhatAnotherAxisLeaves) {
  run_ranks(8, [](Communicator world) {
    DeviceMesh mesh(world, {{"r", 2}, {"s", 2}, {"tp", 2}});
    for (int dim : {0, 1}) {
      Values found[2];
      for (bool sharded : {false, true}) {
        manual_seed(1);
        Linear layer(5, 3, false);
        layer.materialize();
        const ParameterPtr weight = layer.parameters()[0];
        weight->set_value(distribute(weight->value().detach(), mesh, {{"tp", Shard(dim)}}));
        if (sharded) {
          fully_shard(layer, mesh[{"r", "s"}], {.strategy = Strategy::hsdp()});
        }
        const Tensor x = ones({4, 5}, {f32, cpu, Sharding(mesh, {Shard(0), Shard(0)})});
        sum(square(layer(x))).backward();
        if (sharded) {
          std::vector<std::string> order;
          for (int axis : weight->value().sharding().axes_cutting(0)) {
            order.push_back(mesh.axis_name(axis));
          }
          EXPECT_EQ(order, dim == 0 ? std::vector<std::string>({"tp", "s"})
                                    : std::vector<std::string>({"s"}));
        }
        for (const Tensor& t : {weight->value(), weight->grad()}) {
          found[sharded].push_back(t.full_tensor().to_vector<float>());
        }
      }
      EXPECT_EQ(found[0], found[1]);
    }
  });
}

/// y = x weight^T * scale; `scale` has no initial values.
class Scaled final : public Module {
 public:
  Scaled() {
    declare("weight", {5, 4}, normal_values(1));
    declare("scale", {5}, {});
  }

 protected:
  Tensors forward(const Tensors& inputs) override { return {linear(inputs[0], used(0)) * used(1)}; }
};

TEST(Edges, ValuesGivenBesideDeclaredParametersAreKept) {
  run_ranks(3, [](Communicator world) {
    const DeviceMesh mesh(world, {{"dp", 3}});
    Scaled module;
    const Tensor given = from_values(std::vector<double>{1, 2, 3, 4, 5}, {5});
    module.own_parameters()[1].second->set_value(given);
    fully_shard(module, mesh);
    module.materialize();
    const Tensor weight = module.own_parameters()[0].second->value().full_tensor();
    const Tensor scale = module.own_parameters()[1].second->value().full_tensor();
    EXPECT_EQ(scale.to_vector<double>(), given.to_vector<double>());
    const Tensor out = module(distribute(ones({3, 4}), mesh, {Shard(0)})).full_tensor();
    const Tensor expected = sum(weight, {1}) * given;
    EXPECT_LT(norm(slice(out, 0, 0, 1) - expected).item(), 1e-5 * norm(expected).item());
  });
}

TEST(Edges, GivenWeightsAreNotInitialisedAgain) {
  run_ranks(3, [](Communicator world) {
    const DeviceMesh mesh(world, {{"dp", 3}});
    const Tensor given = arange(0, 20, 1).reshape({4, 5});
    for (const bool sharded : {false, true}) {
      Linear layer(5, 4, true);
      layer.parameters()[0]->set_value(given);
      if (sharded) fully_shard(layer, mesh);
      layer.materialize();
      const Tensor weight = layer.parameters()[0]->value();
      EXPECT_EQ((sharded ? weight.full_tensor() : weight).to_vector<double>(),
                given.to_vector<double>());
    }
  });
}

TEST(Edges, ValuesSetLaterAreTaken) {
  run_ranks(3, [](Communicator world) {
    const DeviceMesh mesh(world, {{"dp", 3}});
    for (const Strategy& strategy : {Strategy::full_shard(), Strategy::zero1(), Strategy::ddp()}) {
      Linear layer(2, 4, false);
      fully_shard(layer, mesh, {.strategy = strategy});
      layer.materialize();
      const Tensor rows = distribute(ones({3, 2}), mesh, {Shard(0)});
      sum(layer(rows)).backward();
      const ParameterPtr weight = layer.parameters()[0];
      SGD optimizer(layer.named_parameters(), {.learning_rate = 1});
      optimizer.zero_grad();
      weight->set_value(distribute(full({4, 2}, 3), mesh, {Shard(0)}));
      EXPECT_EQ(layer(rows).full_tensor().to_vector<double>(), std::vector<double>(12, 6));
      weight->set_value(full({4, 2}, 2));
      sum(layer(rows)).backward();
      optimizer.step();
      EXPECT_EQ(weight->value().full_tensor().to_vector<double>(), std::vector<double>(8, -1));
      EXPECT_EQ(layer(rows).full_tensor().to_vector<double>(), std::vector<double>(12, -2));
    }
  });
}

TEST(Edges, AGradientThatIsKeptStays) {
  const auto test = [](Communicator world) {
    const int ranks = world.size();
    const DeviceMesh mesh(world, {{"dp", ranks}});
    for (const Strategy& strategy : {Strategy::full_shard(), Strategy::zero1(), Strategy::ddp()}) {
      Linear layer(2, 4, false);
      fully_shard(layer, mesh, {.strategy = strategy});
      layer.materialize();
      const ParameterPtr weight = layer.parameters()[0];
      const auto backward_of = [&](double value) {
        sum(layer(distribute(full({ranks, 2}, value), mesh, {Shard(0)}))).backward();
        const Tensor gradient = weight->grad();
        weight->clear_grad();
        return gradient;
      };
      const Tensor first = backward_of(1), second = backward_of(5);
      EXPECT_EQ(first.full_tensor().to_vector<double>(), std::vector<double>(8, ranks));
      EXPECT_EQ(second.full_tensor().to_vector<double>(), std::vector<double>(8, 5 * ranks));
    }
  };
  run_ranks(1, test);
  run_ranks(2, test);
}

TEST(Edges, AKeptGradientStaysBesideOnesThatAreSummed) {
  run_ranks(2, [](Communicator world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Sequential model;
    model.append(std::make_shared<Linear>(2, 4, false));
    model.append(std::make_shared<Linear>(4, 4, false));
    fully_shard(model, mesh);
    model.materialize();
    const auto parameters = model.parameters();
    const auto backward_of = [&] {
      sum(model(distribute(ones({2, 2}), mesh, {Shard(0)}))).backward();
    };
    backward_of();
    const Tensor kept = parameters[0]->grad();
    const auto first = kept.full_tensor().to_vector<double>();
    const auto other = parameters[1]->grad().full_tensor().to_vector<double>();
    parameters[0]->clear_grad();
    backward_of();
    EXPECT_EQ(kept.full_tensor().to_vector<double>(), first);
    EXPECT_EQ(parameters[0]->grad().full_tensor().to_vector<double>(), first);
    const auto summed = parameters[1]->grad().full_tensor().to_vector<double>();
    for (size_t i = 0; i < summed.size(); ++i) EXPECT_EQ(summed[i], 2 * other[i]);
  });
}

/// Before the sync, gradients are between two reduce-scatters, or not yet summed over the replicas.
TEST(Edges, AKeptGradientStaysBesideOnesThatWaitForTheSync) {
  run_ranks(4, [](Communicator world) {
    const DeviceMesh mesh(world, {{"r", 2}, {"s", 2}});
    const Strategy late{"late",
                        {{Replicate(), Partial(), Shard(0)}, {Shard(0), Shard(0), Shard(0)}}};
    for (const Strategy& strategy : {Strategy::hsdp(), late}) {
      Sequential model;
      for (int i = 0; i < 2; ++i) model.append(std::make_shared<Linear>(4, 4, false));
      fully_shard(model, mesh, {.strategy = strategy});
      model.materialize();
      const auto parameters = model.parameters();
      const auto backward_of = [&](double value, bool sync) {
        std::optional<NoSync> hold;
        if (!sync) hold.emplace(model);
        sum(model(distribute(full({4, 4}, value), mesh, {Shard(0), Shard(0)}))).backward();
      };
      const auto gradient = [&](int i) {
        return parameters[i]->grad().full_tensor().to_vector<double>();
      };
      backward_of(1, false);
      const Tensor kept = parameters[0]->grad();
      const auto first = gradient(0), other = gradient(1);
      parameters[0]->clear_grad();
      backward_of(3, true);
      EXPECT_EQ(kept.full_tensor().to_vector<double>(), first);
      for (size_t i = 0; i < first.size(); ++i) {
        EXPECT_NEAR(gradient(0)[i], 3 * first[i], 1e-4);
        EXPECT_NEAR(gradient(1)[i], 4 * other[i], 1e-4);
      }
    }
  });
}

TEST(Edges, ParametersMayExchangeTheirValues) {
  run_ranks(2, [](Communicator world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    for (const bool one_group : {true, false}) {
      Sequential model;
      for (int i = 0; i < 2; ++i) model.append(std::make_shared<Linear>(4, 4, false));
      if (!one_group) fully_shard(*model.children()[0].second, mesh);
      fully_shard(model, mesh);
      predicted_bytes(model);  // builds the units before parameters have memory
      const auto parameters = model.parameters();
      for (int i = 0; i < 2; ++i) parameters[i]->set_value(full({4, 4}, i + 1));
      model.materialize();
      const Tensor rows = distribute(ones({2, 4}), mesh, {Shard(0)});
      EXPECT_EQ(model(rows).full_tensor().to_vector<double>(), std::vector<double>(8, 32));
      const Tensor first = parameters[0]->value();
      parameters[0]->set_value(parameters[1]->value());
      EXPECT_EQ(model(rows).full_tensor().to_vector<double>(), std::vector<double>(8, 64));
      fill_(first.local(), 3);
      EXPECT_EQ(parameters[1]->value().full_tensor().to_vector<double>()[0], 2);
      parameters[1]->set_value(full({4, 4}, 5));
      const Tensor a = parameters[0]->value(), b = parameters[1]->value();
      parameters[0]->set_value(b);
      parameters[1]->set_value(a);
      model(rows);
      EXPECT_EQ(parameters[0]->value().full_tensor().to_vector<double>()[0], 5);
      EXPECT_EQ(parameters[1]->value().full_tensor().to_vector<double>()[0], 3);
    }
  });
}

TEST(Edges, WhatWasGatheredBeforeAnUpdateIsNotRead) {
  run_ranks(2, [](Communicator world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Linear layer(2, 4, false);
    fully_shard(layer, mesh, {.strategy = Strategy::zero1()});
    layer.materialize();
    const Tensor rows = distribute(ones({2, 2}), mesh, {Shard(0)});
    const ParameterPtr weight = layer.parameters()[0];
    SGD optimizer(layer.named_parameters(), {.learning_rate = 1});
    sum(layer(rows)).backward();
    EXPECT_TRUE(weight->tensor());
    optimizer.step();
    EXPECT_NE(error_of<std::runtime_error>([&] {
                weight->tensor();
              }).find("was changed after it was gathered"),
              std::string::npos);
    optimizer.zero_grad();
    layer(rows);
    EXPECT_EQ(weight->tensor().full_tensor().to_vector<double>(),
              weight->value().full_tensor().to_vector<double>());
  });
}

TEST(Edges, RefusePartsOfAnotherModel) {
  run_ranks(2, [](Communicator world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    const auto trunk = std::make_shared<Linear>(2, 2, false);
    Sequential actor, critic;
    actor.append(trunk);
    critic.append(trunk);
    fully_shard(*trunk, mesh);
    fully_shard(actor, mesh);
    EXPECT_EQ(error_of([&] { fully_shard(critic, mesh); }),
              "fully_shard: module \"0\" is part of another sharded model, expected one model; "
              "shard one module that contains both");
    Sequential outer;
    const auto inner = std::make_shared<Linear>(2, 2, false);
    outer.append(inner);
    fully_shard(outer, mesh, {.strategy = Strategy::ddp()});
    EXPECT_NE(error_of([&] {
                fully_shard(*inner, mesh, {.strategy = Strategy::ddp()});
              }).find("shard inner modules before outer ones"),
              std::string::npos);
    Linear first(2, 2, false), second(2, 2, false);
    second.set_parameter("weight", first.parameters()[0]);
    fully_shard(first, mesh);
    fully_shard(second, mesh);
    first.materialize();
    EXPECT_EQ(error_of([&] { second.materialize(); }),
              "fully_shard: parameter weight is sharded with another module already, expected "
              "once; shard a module that contains both, before the first forward");
  });
}

TEST(Edges, OptimizersAreMadeAndLoadedBeforeTheFirstForward) {
  run_ranks(2, [](Communicator world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    Linear layer(2, 4, false);
    layer.materialize();
    fully_shard(layer, mesh);
    AdamW optimizer(layer.named_parameters(), {});
    EXPECT_EQ(optimizer.state(0)[0].block().numel(), 4);
    const StateDict state = state_dict(layer);
    sum(layer(distribute(ones({2, 2}), mesh, {Shard(0)}))).backward();
    optimizer.step();
    EXPECT_EQ(state.tensors.begin()->second.full_tensor().to_vector<double>(),
              layer.parameters()[0]->value().full_tensor().to_vector<double>());
    std::vector<NamedParameter> twice = layer.named_parameters();
    twice.push_back(twice[0]);
    EXPECT_EQ(error_of([&] { SGD(twice, {}); }),
              "optimizer: parameter weight is given twice, expected once");
  });
}

TEST(Edges, RefuseLayoutsTheyCannotCut) {
  run_ranks(4, [](Communicator world) {
    DeviceMesh mesh(world, {{"dp", 2}, {"tp", 2}}), other(world, {{"dp", 4}});
    const auto refused = [&](const DeviceMesh& over, const Placements& placements) {
      Linear layer(4, 4, false);
      layer.materialize();
      const ParameterPtr weight = layer.parameters()[0];
      weight->set_value(distribute(weight->value().detach(), over, placements));
      return error_of([&] { fully_shard(layer, mesh["dp"]); });
    };
    EXPECT_EQ(refused(other, {}),
              "fully_shard: layout of parameter weight is mesh(dp=4)[R], expected one over "
              "mesh(dp=2, tp=2)");
    EXPECT_EQ(refused(mesh, {Shard(0)}),
              "fully_shard: layout of parameter weight is mesh(dp=2, tp=2)[S(0), R], expected R "
              "on the axes of mesh(dp=2) and no Partial; give it whole, or distributed over other "
              "axes");
    Linear layer(4, 4, false);
    EXPECT_EQ(error_of([&] {
                fully_shard(layer, other, {.shard_dim = [](const NamedParameter&) { return 2; }});
              }),
              "fully_shard: shard dimension of parameter weight [4, 4] is 2, expected 0 to 1");
  });
}

TEST(Edges, RefuseWhatMakesNoSense) {
  run_ranks(2, [](Communicator world) {
    DeviceMesh mesh(world, {{"dp", 2}});
    Odd model(false);
    const auto refused = [&](const FullyShardOptions& options) {
      return error_of([&] { fully_shard(model, mesh, options); });
    };
    const auto row = [&](Placement parameter, Placement gradient, Placement state) {
      return refused({.strategy = {"mine", {{parameter, gradient, state}}}});
    };
    const std::string axis = "fully_shard: parameter / gradient / state of axis \"dp\" is ";
    EXPECT_EQ(row(Partial(), Shard(0), Shard(0)),
              concat(axis, "P(sum) / S(0) / S(0), expected a parameter that is R or S"));
    EXPECT_EQ(row(Shard(0), Replicate(), Shard(0)),
              concat(axis, "S(0) / R / S(0), expected a gradient that is P(sum) or S"));
    EXPECT_EQ(row(Shard(0), Partial(ReduceOp::max), Shard(0)),
              concat(axis, "S(0) / P(max) / S(0), expected a gradient that is P(sum) or S"));
    EXPECT_EQ(row(Shard(0), Shard(0), Partial()),
              concat(axis, "S(0) / S(0) / P(sum), expected a state that is R or S"));
    EXPECT_EQ(row(Shard(1), Shard(0), Shard(0)),
              concat(axis, "S(1) / S(0) / S(0), expected one dimension in all S"));
    DeviceMesh grid(world, {{"a", 2}, {"b", 1}});
    const StrategyRow rows{Shard(0), Shard(0), Shard(0)}, columns{Shard(1), Shard(1), Shard(1)};
    EXPECT_EQ(error_of([&] {
                fully_shard(model, grid, {.strategy = {"mine", {rows, columns}}});
              }),
              "fully_shard: shard dimension of axis \"b\" is 1, expected 0 as of axis \"a\"");
    Linear layer(4, 4, true);
    fully_shard(layer, mesh, {.strategy = {"mine", {columns}}});
    layer.materialize();
    EXPECT_TRUE(layer.parameters()[0]->value().sharding()[0].is_shard(1));
    EXPECT_TRUE(layer.parameters()[1]->value().sharding()[0].is_shard(0));
    EXPECT_EQ(refused({.prefetch = -1}), "fully_shard: prefetch must be at least 0, got -1");
    EXPECT_EQ(refused({.bucket_bytes = 0}), "fully_shard: bucket_bytes must be at least 1, got 0");
    EXPECT_EQ(refused({.gradient_divide_factor = 0}),
              "fully_shard: gradient_divide_factor must be above 0, got 0");
    EXPECT_EQ(error_of([&] { NoSync hold(model); }),
              "NoSync: the model is not sharded, expected one after fully_shard");
    fully_shard(*model.layers()[0], mesh);
    fully_shard(model, mesh);
    EXPECT_EQ(error_of([&] { explain_schedule(*model.layers()[0]); }),
              "explain_schedule: the module is part of a sharded model, expected its outermost "
              "sharded module");
    EXPECT_EQ(error_of([&] { predicted_bytes(model, 0); }),
              "predicted_bytes: micro_steps must be at least 1, got 0");
  });
}

/// The reductions of the last layers run while backward continues.
TEST(Edges, BucketsAreReducedWhileBackwardGoesOn) {
  run_ranks(2, [](Communicator world) {
    DeviceMesh mesh(world, {{"dp", 2}});
    Odd model(false);
    fully_shard(model, mesh, {.strategy = Strategy::ddp(), .bucket_bytes = 100});
    std::vector<std::string> sums;
    for (const ProgramStep& step : schedule_of(model).steps) {
      if (step.verb == "all-reduce") sums.push_back(step.object);
    }
    EXPECT_EQ(sums,
              std::vector<std::string>({"the root#0", "the root#1", "the root#2", "the root#3"}));
    EXPECT_TRUE(has(explain_schedule(model), "backward  all-reduce the root#1 over dp, "));
    model.materialize();
    sum(model(rows_over(mesh))).backward();
    EXPECT_EQ(schedule_of(model, {.sync = false}).steps.back().act, ProgramAct::compute);
  });
}

/// One rank of a large simulated cluster, without memory.
TEST(Edges, PlanAndRunWithoutMemory) {
  const auto began = std::chrono::steady_clock::now();
  const int64_t held = memory_statistics().total.current;
  Communicator world = fake_world(0, 512);
  DeviceMesh mesh(world, {{"across", 64}, {"within", 8}});
  TransformerModel model(large_llama());
  shard(model, mesh, {.strategy = Strategy::hsdp(), .precision = {.compute = bf16}});
  const FullyShardBytes bytes = predicted_bytes(model, 4);
  EXPECT_NEAR(static_cast<double>(bytes.parameters), 70.55e9 * 4 / 8, 0.01e9);
  EXPECT_TRUE(has(explain_schedule(model), "\nbackward  wait for sum of "));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
  model.materialize(meta);
  const Tensor ids = empty({512, 8}, {i64, meta, Sharding(mesh, {Shard(0), Shard(0)})});
  for (int step = 0; step < 2; ++step) model.loss(ids, ids).backward();
  EXPECT_EQ(model.parameters()[0]->grad().dtype(), f32);
  EXPECT_EQ(measured_bytes(model).received, predicted_bytes(model).received);
  EXPECT_EQ(measured_bytes(model).buffers, predicted_bytes(model).buffers);
  EXPECT_LT(memory_statistics().total.current - held, 1 << 20);
}

TEST(Edges, AUnitWhoseSlicesAreAllEmptyElsewhereIsGatheredByAll) {
  run_ranks(3, [](Communicator world) {
    DeviceMesh mesh(world, {{"dp", 3}});
    Linear layer(4, 1, false);
    fully_shard(layer, mesh, {.strategy = Strategy::zero1()});
    layer.materialize();
    SGD optimizer(layer.named_parameters(), {.learning_rate = 0.1});
    const Tensor x = ones({3, 4}, {f32, cpu, Sharding(mesh, {Shard(0)})});
    double before = 0;
    for (int step = 0; step < 3; ++step) {
      const Tensor loss = sum(layer(x));
      loss.backward();
      optimizer.step();
      optimizer.step();
      optimizer.zero_grad();
      const double now = loss.detach().full_tensor().item();
      if (step > 0) {
        EXPECT_NEAR(now, before - 2 * 0.1 * 3 * 3 * 4, 1e-4);
      }
      before = now;
    }
  });
}

}  // namespace
}  // namespace weft

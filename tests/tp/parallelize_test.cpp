// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/ranks.h"
#include "weft/autograd.h"
#include "weft/layers.h"
#include "weft/tensor_parallel.h"

namespace weft {
namespace {

/// x -> down(gelu(up x)), with biases.
class FeedForward final : public Module {
 public:
  FeedForward(int64_t dim, int64_t width) {
    up_ = add("up", std::make_shared<Linear>(dim, width, true, 0.3));
    down_ = add("down", std::make_shared<Linear>(width, dim, true, 0.3));
  }

 protected:
  Tensors forward(const Tensors& inputs) override { return {(*down_)(gelu((*up_)(inputs[0])))}; }

 private:
  std::shared_ptr<Module> up_, down_;
};

/// A custom module: rows of x scaled by a vector.
class Scaled final : public Module {
 public:
  explicit Scaled(int64_t dim) { declare("scale", {dim}, normal_values(1)); }

 protected:
  Tensors forward(const Tensors& inputs) override { return {inputs[0] * used(0)}; }
};

void expect_laid_out(const Module& module, size_t parameter, std::vector<Placement> expected) {
  expect_placements(module.own_parameters()[parameter].second->value(), expected);
}

/// The results of one rank: the output, and the gradients of the input and of the parameters.
struct Computed {
  std::vector<std::vector<double>> values;
};

Computed computed(Module& module, const DeviceMesh& mesh, const Placements& placements) {
  Tensor x = distribute(normal({2, 5, 7}, 0, 1), mesh, placements).detach();
  x.set_requires_grad();
  const Tensor y = module(x);
  const Tensor weights = distribute(normal({2, 5, 7}, 0, 1), mesh, {});
  sum(y * weights).backward();
  Computed result{{whole_values(y), whole_values(x.grad())}};
  for (const ParameterPtr& parameter : module.parameters()) {
    result.values.push_back(whole_values(parameter->grad()));
  }
  return result;
}

void expect_as_alone(const std::vector<MeshAxis>& axes, const std::vector<ModuleStyle>& styles,
                     const Placements& input) {
  Computed alone;
  on_mesh({{"tp", 1}}, [&](const DeviceMesh& mesh) {
    FeedForward module(7, 11);
    parallelize(module, mesh["tp"], {});
    module.materialize();
    alone = computed(module, mesh, {});
  });
  on_mesh(axes, [&](const DeviceMesh& mesh) {
    FeedForward module(7, 11);
    parallelize(module, mesh["tp"], styles);
    module.materialize();
    const Computed together = computed(module, mesh, input);
    ASSERT_EQ(together.values.size(), alone.values.size());
    for (size_t i = 0; i < alone.values.size(); ++i) {
      expect_values(together.values[i], alone.values[i], 1e-6);
    }
  });
}

TEST(Parallelize, LaysOutParameters) {
  on_mesh({{"dp", 2}, {"tp", 2}}, [](const DeviceMesh& mesh) {
    Sequential model;
    auto embedding = std::make_shared<Embedding>(9, 6), wide = std::make_shared<Embedding>(9, 6);
    auto column = std::make_shared<Linear>(6, 5, true), row = std::make_shared<Linear>(5, 6, true);
    auto norm = std::make_shared<RMSNorm>(6);
    for (const std::shared_ptr<Module>& module :
         std::vector<std::shared_ptr<Module>>{embedding, wide, column, row, norm}) {
      model.append(module);
    }
    parallelize(model, mesh["tp"],
                {{"0", Rowwise()}, {"1", Colwise()}, {"2", Colwise()}, {"3", Rowwise()}});
    expect_laid_out(*embedding, 0, {Replicate(), Shard(0)});
    expect_laid_out(*wide, 0, {Replicate(), Shard(1)});
    expect_laid_out(*column, 0, {Replicate(), Shard(0)});
    expect_laid_out(*column, 1, {Replicate(), Shard(0)});
    expect_laid_out(*row, 0, {Replicate(), Shard(1)});
    expect_laid_out(*row, 1, {Replicate(), Replicate()});
    expect_laid_out(*norm, 0, {Replicate(), Replicate()});
    EXPECT_FALSE(column->own_parameters()[0].second->is_materialized());
  });
}

/// The full values are released; each rank keeps its part.
TEST(Parallelize, KeepsOnlyItsPartOfValues) {
  on_mesh({{"tp", 2}}, [](const DeviceMesh& mesh) {
    const int64_t before = memory_statistics().total.current;
    Linear linear(64, 32);
    linear.materialize();
    const auto whole = linear.own_parameters()[0].second->value().to_vector<double>();
    parallelize(linear, mesh["tp"], {{"", Colwise()}});
    EXPECT_EQ(memory_statistics().total.current - before, 64 * 32 / 2 * 4);
    EXPECT_EQ(whole_values(linear.own_parameters()[0].second->value()), whole);
  });
}

TEST(Parallelize, ComputesAsOneRank) {
  for (int ranks : {1, 2, 3, 4}) {
    expect_as_alone({{"tp", ranks}}, {{"up", Colwise()}, {"down", Rowwise()}}, {});
    expect_as_alone({{"tp", ranks}},
                    {{"", PrepareInput{{Replicate()}}},
                     {"up", Colwise()},
                     {"down", Rowwise{.output = Shard(1)}}},
                    {{"tp", Shard(1)}});
    expect_as_alone({{"tp", ranks}}, {{"*", Colwise{.output = Replicate()}}}, {{"tp", Shard(2)}});
    expect_as_alone({{"tp", ranks}},
                    {{"up", SequenceParallel{.dim = 0}}, {"", PrepareOutput{{Shard(2)}}}}, {});
  }
}

TEST(Parallelize, LeavesOtherAxesAlone) {
  expect_as_alone({{"dp", 2}, {"tp", 2}}, {{"up", Colwise()}, {"down", Rowwise()}},
                  {{"dp", Shard(0)}});
  expect_as_alone(
      {{"tp", 3}, {"dp", 2}},
      {{"", PrepareInput{{Replicate()}}}, {"up", Colwise()}, {"down", Rowwise{.output = Shard(1)}}},
      {{"dp", Shard(1)}, {"tp", Shard(1)}});
}

/// A gathered input's gradient is scattered by one plan, not reduced everywhere and then sliced.
TEST(Parallelize, BringsGradientsBackAtOnce) {
  on_mesh({{"tp", 2}}, [](const DeviceMesh& mesh) {
    FeedForward module(8, 12);
    parallelize(module, mesh["tp"],
                {{"", PrepareInput{{Replicate()}}},
                 {"up", Colwise()},
                 {"down", Rowwise{.output = Shard(1)}}});
    module.materialize();
    Tensor x = distribute(normal({2, 4, 8}, 0, 1), mesh, {Shard(1)}).detach();
    x.set_requires_grad();
    constexpr int64_t kHalf = 2 * 2 * 8 * 4;
    Tensor y;
    EXPECT_EQ(bytes_received(mesh, [&] { y = module(x); }), 2 * kHalf);
    const Tensor ones = distribute(full({2, 4, 8}, 1), mesh, {Shard(1)});
    EXPECT_EQ(bytes_received(mesh, [&] { backward({y}, {ones}); }), 2 * kHalf);
  });
}

/// Also when a module has several styles.
TEST(Parallelize, LetsTheLastStyleHaveTheLastWord) {
  on_mesh({{"tp", 2}}, [](const DeviceMesh& mesh) {
    for (bool prepared_last : {false, true}) {
      FeedForward module(4, 4);
      const ModuleStyle column = {"up", Colwise{.output = Replicate()}};
      const ModuleStyle prepared = {"up", PrepareOutput{{Shard(0)}}};
      if (prepared_last) {
        parallelize(module, mesh["tp"], {column, prepared});
      } else {
        parallelize(module, mesh["tp"], {prepared, column});
      }
      module.materialize();
      const Tensor y = module.module("up")(Tensors{distribute(ones({2, 4}), mesh, {})})[0];
      expect_placements(y, {prepared_last ? Placement(Shard(0)) : Placement(Replicate())});
    }
  });
}

TEST(Parallelize, TakesModulesOfOnesOwn) {
  on_mesh({{"tp", 2}}, [](const DeviceMesh& mesh) {
    Scaled module(7);
    parallelize(module, mesh["tp"],
                {{"", Layouts{.parameters = {{"scale", Shard(0)}},
                              .inputs = {Shard(1)},
                              .outputs = {Replicate()}}}});
    module.materialize();
    expect_laid_out(module, 0, {Shard(0)});
    const Tensor y = module(distribute(numbers({3, 7}), mesh, {}));
    expect_placements(y, {Replicate()});
    const Tensor scale = module.parameters()[0]->value().full_tensor();
    expect_values(whole_values(y), whole_values(numbers({3, 7}) * scale));
  });
}

}  // namespace
}  // namespace weft

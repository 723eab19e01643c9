// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/processes.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/hash.h"
#include "weft/extend/module_sharder.h"
#include "weft/extend/replicas.h"
#include "weft/layers.h"
#include "weft/module.h"
#include "weft/ops.h"
#include "weft/optimizers.h"

namespace weft {
namespace {

/// Parameters "one.weight" [5, 3] and "two.weight" [7, 5], laid out as said.
class TwoLayers final : public Module {
 public:
  TwoLayers(const Sharding& one, const Sharding& two) {
    add("one", std::make_shared<Linear>(3, 5, false));
    add("two", std::make_shared<Linear>(5, 7, false));
    const Sharding shardings[] = {one, two};
    int i = 0;
    for (const ParameterPtr& parameter : parameters()) {
      const Sharding& sharding = shardings[i++];
      ModuleSharder::lay_out(*parameter,
                             empty(parameter->shape(), {parameter->dtype(), meta, sharding}));
    }
    materialize();
  }

 protected:
  Tensors forward(const Tensors& inputs) override { return inputs; }
};

/// Adds 1 to the last of this rank's elements of a parameter.
void change(const Module& module, size_t parameter) {
  const NoGrad no_grad;
  Tensor local = module.parameters()[parameter]->value().local();
  if (local.numel() > 0) local.block().as<float>()[local.numel() - 1] += 1;
}

TEST(Replicas, EqualOnesPass) {
  for (const int ranks : {1, 3}) {
    on_mesh({{"dp", ranks}}, [](const DeviceMesh& mesh) {
      check_replicas(TwoLayers(Sharding(mesh, {Replicate()}), Sharding(mesh, {Shard(0)})));
      check_replicas(TwoLayers(Sharding(), Sharding()));
    });
  }
}

TEST(Replicas, ADifferenceIsNamedOnAllRanks) {
  on_mesh({{"dp", 3}}, [](const DeviceMesh& mesh) {
    const TwoLayers model(Sharding(mesh, {Shard(0)}), Sharding(mesh, {Replicate()}));
    // The parameter that is cut differs from rank to rank.
    change(model, 0);
    check_replicas(model);
    if (mesh.rank() == 2) change(model, 1);
    EXPECT_EQ(error_of([&] { check_replicas(model); }),
              "check_replicas: parameter \"two.weight\" on rank 2 differs from that on rank 0, "
              "expected equal replicas along axis dp");
  });
}

TEST(Replicas, EachAxisIsCompared) {
  on_mesh({{"dp", 2}, {"tp", 3}}, [](const DeviceMesh& mesh) {
    for (const int wrong : {3, 4, 5}) {
      const TwoLayers model(Sharding(mesh, {Replicate(), Shard(0)}),
                            Sharding(mesh, {Shard(0), Replicate()}));
      if (mesh.rank() == wrong) change(model, 0);
      EXPECT_EQ(error_of([&] { check_replicas(model); }),
                concat("check_replicas: parameter \"one.weight\" on rank ", wrong,
                       " differs from that on rank ", wrong - 3,
                       ", expected equal replicas along axis dp"));
    }
    const TwoLayers model(Sharding(mesh, {Replicate(), Shard(0)}),
                          Sharding(mesh, {Shard(0), Replicate()}));
    if (mesh.rank() == 4) change(model, 1);
    EXPECT_EQ(error_of([&] { check_replicas(model); }),
              "check_replicas: parameter \"two.weight\" on rank 4 differs from that on rank 3, "
              "expected equal replicas along axis tp");
  });
}

TEST(Replicas, TheRanksThatMostContradictAreNamed) {
  on_mesh({{"dp", 5}}, [](const DeviceMesh& mesh) {
    const TwoLayers model(Sharding(mesh, {Replicate()}), Sharding(mesh, {Replicate()}));
    if (mesh.rank() == 0) change(model, 1);
    EXPECT_EQ(error_of([&] { check_replicas(model); }),
              "check_replicas: parameter \"two.weight\" on rank 0 differs from that on rank 1, "
              "expected equal replicas along axis dp");
    if (mesh.rank() == 3) change(model, 1);
    EXPECT_EQ(error_of([&] { check_replicas(model); }),
              "check_replicas: parameter \"two.weight\" on ranks 0, 3 differ from that on rank 1, "
              "expected equal replicas along axis dp");
  });
}

TEST(Replicas, OfAnOptimizersStateAreCompared) {
  on_mesh({{"dp", 3}}, [](const DeviceMesh& mesh) {
    const TwoLayers model(Sharding(mesh, {Replicate()}), Sharding(mesh, {Shard(0)}));
    AdamW optimizer(model.named_parameters());
    check_replicas(optimizer);
    for (const NamedParameter& named : model.named_parameters()) {
      const Tensor value = named.parameter->value();
      sum(mul(value, value)).backward();
    }
    optimizer.step();
    check_replicas(optimizer);
    const auto disturb = [&](size_t parameter, size_t moment) {
      const Tensor local = optimizer.state(parameter)[moment].local();
      if (local.numel() > 0) local.block().as<float>()[0] += 1;
    };
    // The state of the parameter that is cut differs from rank to rank.
    disturb(1, 0);
    check_replicas(optimizer);
    if (mesh.rank() == 1) disturb(0, 1);
    EXPECT_EQ(error_of([&] { check_replicas(optimizer); }),
              concat("check_replicas: optimizer state \"one.weight.", optimizer.moments()[1],
                     "\" on rank 1 differs from that on rank 0, expected equal replicas along axis "
                     "dp"));
  });
}

TEST(Replicas, ProcessesAreCompared) {
  if (!kForks) GTEST_SKIP() << "no forks under this sanitizer";
  run_processes(2, [](const Communicator& world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    const TwoLayers model(Sharding(mesh, {Replicate()}), Sharding(mesh, {Replicate()}));
    check_replicas(model);
    if (mesh.rank() == 1) change(model, 0);
    EXPECT_NE(error_of([&] { check_replicas(model); }).find("on rank 1 differs"),
              std::string::npos);
  });
}

TEST(Replicas, ParametersWithoutMemoryAreRefused) {
  Linear layer(2, 2);
  EXPECT_EQ(
      error_of([&] { check_replicas(layer); }),
      "check_replicas: parameter \"weight\" has no memory, expected some; call materialize first");
}

/// XXH3's published test values of no bytes.
TEST(Replicas, TheHashIsXxh3) {
  EXPECT_EQ(xxh3_of({}), 0x2d06800538d394c2u);
  EXPECT_NE(xxh3_of({}, 1), xxh3_of({}));
}

}  // namespace
}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "fsdp/param_group.h"
#include "fsdp/scheduler.h"
#include "weft/error.h"
#include "weft/layers.h"
#include "weft/ranks.h"

namespace weft::fsdp {
namespace {

/// Writes the actions of a scheduler down.
class Writer final : public Executor {
 public:
  void unshard(ParamGroup&, size_t level) override { add(concat("unshard", level)); }
  void wait_for_unshard(ParamGroup&) override { add("wait"); }
  void compute(ParamGroup&) override { add("compute"); }
  void reshard(ParamGroup&, size_t level) override { add(concat("reshard", level)); }
  void allocate_grads(ParamGroup&) override { add("allocate"); }
  void release_grads(ParamGroup&) override { add("release"); }
  void close_bucket(ParamGroup&, int, size_t) override {}
  void reduce_grads(ParamGroup&, int, size_t reduction) override {
    add(concat("reduce", reduction));
  }
  void wait_for_reduce(ParamGroup&, int, size_t reduction, bool) override {
    add(concat("reduced", reduction));
  }
  std::string actions() { return std::exchange(text_, {}); }

 private:
  void add(const std::string& action) { text_ += concat(text_.empty() ? "" : " ", action); }
  std::string text_;
};

/// Returns a group of one layer and a root group without parameters.
ParamGroups groups_of(Linear& layer, const DeviceMesh& mesh, const FullyShardOptions& options) {
  ParamGroups groups;
  for (const bool is_root : {false, true}) {
    const Roles roles = roles_of(mesh, options.strategy, options.reshard_after_forward);
    const auto group = ParamGroup::make(roles, options);
    group->index = groups.size();
    group->set_sink_maker([](size_t) { return nullptr; });
    if (!is_root) group->adopt(layer.named_parameters()[0], 0);
    group->build();
    groups.push_back(group);
  }
  return groups;
}

struct Model {
  explicit Model(const DeviceMesh& mesh, const FullyShardOptions& options = {})
      : groups(groups_of(layer, mesh, options)) {}

  std::string begin(bool sync = true) {
    scheduler.begin_step(true);
    scheduler.set_sync(sync);
    return writer.actions();
  }
  std::string on(StepEvent::Kind kind) {
    if (kind == StepEvent::Kind::pre_backward) scheduler.begin_backward();
    scheduler.handle({kind, groups[0].get()}, {});
    return writer.actions();
  }

  Linear layer{4, 4, false};
  ParamGroups groups;
  Writer writer;
  Scheduler scheduler{groups, writer};
};

using Kind = StepEvent::Kind;

TEST(Scheduler, UnshardsForEachUse) {
  run_ranks(2, [](Communicator world) {
    Model model(DeviceMesh(world, {{"dp", 2}}));
    for (int step = 0; step < 2; ++step) {
      EXPECT_EQ(model.begin(), "");
      EXPECT_EQ(model.on(Kind::pre_forward), "unshard0 wait compute");
      EXPECT_EQ(model.on(Kind::pre_forward), "wait compute") << "unsharded already";
      EXPECT_EQ(model.on(Kind::post_forward), "reshard0");
      EXPECT_EQ(model.on(Kind::pre_backward), "unshard0 wait allocate compute");
      EXPECT_EQ(model.on(Kind::grads_complete), "reshard0 reduce0");
      EXPECT_EQ(model.on(Kind::finalize), "reduced0 release");
    }
    model.begin();
    model.on(Kind::pre_forward);
    model.on(Kind::pre_backward);
    model.scheduler.abandon();
    EXPECT_EQ(model.writer.actions(), "reshard0 release");
  });
}

TEST(Scheduler, KeepsAGroupUnshardedUntilItsSlicesChange) {
  run_ranks(2, [](Communicator world) {
    Model model(DeviceMesh(world, {{"dp", 2}}), {.strategy = Strategy::zero1()});
    for (const bool sync : {false, true}) {
      EXPECT_EQ(model.begin(sync), "");
      EXPECT_EQ(model.on(Kind::pre_forward), sync ? "wait compute" : "unshard0 wait compute");
      EXPECT_EQ(model.on(Kind::post_forward), "");
      EXPECT_EQ(model.on(Kind::pre_backward), sync ? "wait compute" : "wait allocate compute");
      EXPECT_EQ(model.on(Kind::grads_complete), sync ? "reduce0" : "") << "kept for the sync";
      EXPECT_EQ(model.on(Kind::finalize), sync ? "reduced0 release" : "");
    }
    model.scheduler.slices_changed(*model.groups[0]);
    EXPECT_EQ(model.on(Kind::pre_forward), "unshard0 wait compute");
  });
}

TEST(Scheduler, KeepsTheLowerLevelPostForward) {
  run_ranks(4, [](Communicator world) {
    Model model(DeviceMesh(world, {{"across", 2}, {"within", 2}}),
                {.reshard_after_forward = "within"});
    model.begin();
    EXPECT_EQ(model.on(Kind::pre_forward), "unshard0 unshard1 wait compute");
    EXPECT_EQ(model.on(Kind::post_forward), "reshard1");
    EXPECT_EQ(model.on(Kind::pre_backward), "unshard1 wait allocate compute");
    EXPECT_EQ(model.on(Kind::grads_complete), "reshard1 reshard0 reduce0");
  });
}

TEST(Scheduler, ReducesAcrossReplicasAtTheSync) {
  run_ranks(4, [](Communicator world) {
    Model model(DeviceMesh(world, {{"across", 2}, {"within", 2}}), {.strategy = Strategy::hsdp()});
    for (const bool sync : {false, true}) {
      model.begin(sync);
      model.on(Kind::pre_forward);
      model.on(Kind::pre_backward);
      EXPECT_EQ(model.on(Kind::grads_complete), "reshard0 reduce0");
      EXPECT_EQ(model.on(Kind::grads_continue),
                sync ? "reduced0 release reduce1 reduced1 allocate" : "reduced0 release allocate");
      EXPECT_EQ(model.on(Kind::grads_complete), "reduce0");
      EXPECT_EQ(model.on(Kind::finalize),
                sync ? "reduced0 release reduce1 reduced1" : "reduced0 release");
    }
  });
}

}  // namespace
}  // namespace weft::fsdp

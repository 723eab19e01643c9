// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/fsdp/chain.h"
#include "tests/support/scratch.h"
#include "weft/autograd.h"
#include "weft/error.h"
#include "weft/ranks.h"

namespace weft {
namespace {

/// Calls of methods around each of 3 micro-steps, which leave the sum of the gradients as it is.
struct Setting {
  const char* name;
  std::function<void(Chain&, bool last)> before;
  std::function<void(Chain&, bool last)> after = [](Chain&, bool) {};
  FullyShardOptions options = {};
};

CustomCollective counted(int& calls, bool gathers) {
  return [&calls, gathers](const Communicator& ranks, std::span<const Piece> pieces) {
    ++calls;
    return gathers ? ranks.all_gather(pieces) : ranks.reduce_scatter(pieces, ReduceOp::sum);
  };
}

std::vector<Setting> lasting_settings() {
  const auto nothing = [](Chain&, bool) {};
  return {
      {"nothing", nothing},
      {"keep after forward",
       [](Chain& chain, bool) { FsdpModule(chain).set_reshard_after_forward(false); }},
      {"reshard the root after forward",
       [](Chain& chain, bool) { FsdpModule(chain).set_reshard_after_forward(true); }},
      {"keep after backward",
       [](Chain& chain, bool last) { FsdpModule(chain).set_reshard_after_backward(last); }},
      {"no gradient sync",
       [](Chain& chain, bool last) { FsdpModule(chain).set_requires_gradient_sync(last); }},
      {"no gradient sync of a part",
       [](Chain& chain, bool last) {
         FsdpModule(*chain.layers[1]).set_requires_gradient_sync(last);
       }},
      {"no all-reduce",
       [](Chain& chain, bool last) { FsdpModule(chain).set_requires_all_reduce(last); }},
      {"no gradient sync, then no all-reduce",
       [](Chain& chain, bool last) {
         const bool is_first = !chain.parameters()[0]->grad();
         FsdpModule(chain).set_requires_gradient_sync(last || !is_first);
         FsdpModule(chain).set_requires_all_reduce(last);
       }},
      {"keep storage",
       [](Chain& chain, bool) { FsdpModule(chain).set_keep_unsharded_storage(true); }},
      {"not the last backward",
       [](Chain& chain, bool last) { FsdpModule(chain).set_is_last_backward(last); }},
      {"nor a sync",
       [](Chain& chain, bool last) {
         FsdpModule(chain).set_is_last_backward(last);
         FsdpModule(chain).set_requires_gradient_sync(last);
       }},
  };
}

/// The same, for calls that begin or end steps.
std::vector<Setting> settings_of_steps() {
  return {
      {"manual",
       [](Chain& chain, bool) { FsdpModule(chain).set_manual_backward_finalization(true); },
       [](Chain& chain, bool last) {
         if (last) FsdpModule(chain).finalize_backward();
       }},
      {"manual, each",
       [](Chain& chain, bool) { FsdpModule(chain).set_manual_backward_finalization(true); },
       [](Chain& chain, bool) { FsdpModule(chain).finalize_backward(true).wait(); }},
      {"manual with a late sync",
       [](Chain& chain, bool) {
         FsdpModule(chain).set_manual_backward_finalization(true);
         FsdpModule(chain).set_requires_gradient_sync(false);
       },
       [](Chain& chain, bool last) {
         if (!last) return;
         FsdpModule(chain).set_requires_gradient_sync(true);
         FsdpModule(chain).finalize_backward();
       }},
      {"unshard",
       [](Chain& chain, bool) {
         FsdpModule(*chain.layers[0]).unshard();
         FsdpModule(*chain.layers[2]).unshard(true);
       }},
      {"unshard and reshard",
       [](Chain& chain, bool) {
         FsdpModule(*chain.layers[1]).unshard(true).wait();
         FsdpModule(*chain.layers[1]).reshard();
       },
       [](Chain& chain, bool) { FsdpModule(chain).reshard(); }},
      {"prefetch lists",
       [](Chain& chain, bool) {
         FsdpModule(chain).set_modules_to_forward_prefetch({chain.layers[0].get()});
         FsdpModule(*chain.layers[0])
             .set_modules_to_forward_prefetch({chain.layers[1].get(), chain.layers[2].get()});
         FsdpModule(*chain.layers[2])
             .set_modules_to_backward_prefetch({chain.layers[0].get(), chain.layers[1].get()});
       }},
      {"hook of nothing",
       [](Chain& chain, bool) {
         FsdpModule(*chain.layers[1]).set_all_reduce_hook([](const Tensor&) {});
       }},
      {"what holds always",
       [](Chain& chain, bool) {
         FsdpModule(chain).set_force_sum_reduction_for_comms(true);
         FsdpModule(chain).set_reduce_scatter_unused_params(true);
       }},
  };
}

std::vector<Setting> settings() {
  std::vector<Setting> all = lasting_settings();
  for (Setting& setting : settings_of_steps()) all.push_back(std::move(setting));
  return all;
}

struct Mesh {
  const char* name;
  std::vector<MeshAxis> axes;
  Strategy strategy;
};

std::vector<Mesh> meshes() {
  const Strategy late{"late", {{Replicate(), Partial(), Shard(0)}, {Shard(0), Shard(0), Shard(0)}}};
  std::vector<Mesh> all;
  for (int ranks : {1, 2, 3}) {
    for (const char* name : {"full_shard", "zero2", "zero1", "ddp"}) {
      all.push_back({name, {{"dp", ranks}}, Strategy::named(name)});
    }
  }
  all.push_back({"hsdp", {{"across", 2}, {"within", 2}}, Strategy::hsdp()});
  all.push_back({"late", {{"across", 2}, {"within", 2}}, late});
  return all;
}

FullyShardOptions options_of(const Mesh& given, const Setting& setting) {
  FullyShardOptions options = setting.options;
  options.strategy = given.strategy;
  return options;
}

TEST(Methods, LeaveTheGradientsOfAPlainModel) {
  const Values expected = plain_gradients(3);
  for (const Mesh& given : meshes()) {
    for (const Setting& setting : settings()) {
      on_chain(given.axes, options_of(given, setting), [&](Chain& chain, const DeviceMesh& mesh) {
        chain.materialize();
        const std::string name = concat(given.name, " on ", mesh.size(), ", ", setting.name);
        for (int step = 0; step < 3; ++step) {
          for (const ParameterPtr& p : chain.parameters()) p->clear_grad();
          for (int micro = 0; micro < 3; ++micro) {
            setting.before(chain, micro == 2);
            sum(square(chain(rows_of(mesh, micro)))).backward();
            setting.after(chain, micro == 2);
          }
          expect_near(gradients_of(chain), expected, name);
        }
      });
    }
  }
}

/// The prediction knows what a method changes: bytes received and buffers of a step after an
/// update.
TEST(Methods, ArePredicted) {
  for (const Mesh& given : meshes()) {
    for (const Setting& setting : settings()) {
      const std::string what = setting.name;
      // Several backwards are one step, or their calls come between steps.
      if (what.find("manual") == 0 || what.find("nor a sync") == 0 || what.find("not") == 0 ||
          what.find("unshard") == 0) {
        continue;
      }
      on_chain(given.axes, options_of(given, setting), [&](Chain& chain, const DeviceMesh& mesh) {
        chain.materialize();
        for (int step = 0; step < 3; ++step) {
          const NoGrad no_grad;
          for (const ParameterPtr& p : chain.parameters()) {
            p->clear_grad();
            if (step > 0) mul_(p->value(), 0.5);
          }
          setting.before(chain, true);
          Context::current().grad_enabled = true;
          const FullyShardBytes predicted = predicted_bytes(chain);
          sum(square(chain(rows_of(mesh, 0)))).backward();
          const FullyShardBytes measured = measured_bytes(chain);
          const std::string name = concat(given.name, " on ", mesh.size(), ", ", what);
          EXPECT_EQ(measured.received, predicted.received) << name;
          EXPECT_EQ(measured.gradients, predicted.gradients) << name;
          if (step < 2) continue;
          EXPECT_EQ(measured.buffers, predicted.buffers) << name;
        }
      });
    }
  }
}

TEST(Methods, UnshardedParametersAreWhole) {
  on_chain({{"dp", 3}}, {}, [](Chain& chain, const DeviceMesh&) {
    chain.materialize();
    const ParameterPtr weight = chain.layers[1]->parameters()[0];
    const auto whole = weight->value().full_tensor().to_vector<float>();
    EXPECT_NE(error_of<std::runtime_error>([&] { weight->tensor().to_vector<float>(); }),
              "nothing");
    UnshardHandle handle = FsdpModule(*chain.layers[1]).unshard(true);
    handle.wait();
    handle.wait();
    EXPECT_EQ(weight->tensor().local().to_vector<float>(), whole);
    FsdpModule(*chain.layers[1]).reshard();
    EXPECT_NE(error_of<std::runtime_error>([&] { weight->tensor().to_vector<float>(); }),
              "nothing");
  });
}

TEST(Methods, AModuleWithoutParametersIsUnsharded) {
  on_chain({{"dp", 2}}, {}, [](Chain& chain, const DeviceMesh&) {
    chain.materialize();
    FsdpModule(chain).unshard(true).wait();
    FsdpModule(chain).reshard();
  });
}

/// Parameters that forward kept are resharded by hand: backward gathers them again.
TEST(Methods, AManualReshardGathersAgain) {
  const Values expected = plain_gradients(1);
  on_chain({{"dp", 3}}, {.reshard_after_forward = false},
           [&](Chain& chain, const DeviceMesh& mesh) {
             const Tensor loss = sum(square(chain(rows_of(mesh, 0))));
             const int64_t before = predicted_bytes(chain).received;
             for (const auto& layer : chain.layers) FsdpModule(*layer).reshard();
             loss.backward();
             expect_near(gradients_of(chain), expected, "resharded by hand");
             EXPECT_GT(measured_bytes(chain).received, before);
           });
}

/// With gradient sync off no gradient is sent, and `grad()` says that it is not reduced.
TEST(Methods, WithoutGradientSyncNothingIsReduced) {
  on_chain({{"dp", 2}}, {}, [](Chain& chain, const DeviceMesh& mesh) {
    FsdpModule(chain).set_requires_gradient_sync(false);
    sum(square(chain(rows_of(mesh, 0)))).backward();
    EXPECT_TRUE(chain.parameters()[0]->grad().sharding()[0].is_partial());
    int scatters = 0;
    for (const ProgramStep& step : schedule_of(chain).steps) {
      scatters += step.verb == "reduce-scatter";
    }
    EXPECT_EQ(scatters, 0);
  });
}

/// The actions of a schedule for a module, as words.
std::string actions_of(Module& model, const std::string& module, bool backward) {
  std::string words;
  for (const ProgramStep& step : schedule_of(model).steps) {
    if (step.object != module || (step.phase == "backward") != backward) continue;
    for (const char* verb : {"unshard", "reshard", "wait", "compute"}) {
      if (step.verb == verb) words += verb[0];
    }
  }
  return words;
}

TEST(Methods, ShowInTheSchedule) {
  on_chain({{"dp", 2}}, {}, [](Chain& chain, const DeviceMesh&) {
    EXPECT_EQ(actions_of(chain, "second", false), "uwcr");
    EXPECT_EQ(actions_of(chain, "second", true), "uwcr");
    FsdpModule(chain).set_reshard_after_forward(false);
    EXPECT_EQ(actions_of(chain, "second", false), "uwc");
    EXPECT_EQ(actions_of(chain, "second", true), "wcr");
    FsdpModule(chain).set_reshard_after_backward(false);
    EXPECT_EQ(actions_of(chain, "second", true), "wc");
    FsdpModule(chain).set_reshard_after_forward(true);
    FsdpModule(chain).set_reshard_after_backward(true);
    FsdpModule(*chain.layers[1]).set_unshard_in_backward(false);
    EXPECT_EQ(actions_of(chain, "second", true), "c");
  });
}

TEST(Methods, PrefetchListsSetTheSchedule) {
  on_chain({{"dp", 2}}, {}, [](Chain& chain, const DeviceMesh& mesh) {
    FsdpModule(*chain.layers[0])
        .set_modules_to_forward_prefetch({chain.layers[2].get(), chain.layers[1].get()});
    for (int step = 0; step < 2; ++step) {
      const std::string text = explain_schedule(chain);
      const size_t third = text.find("unshard third"), second = text.find("unshard second");
      EXPECT_LT(text.find("wait first"), third);
      EXPECT_LT(third, second);
      EXPECT_LT(second, text.find("compute first"));
      sum(square(chain(rows_of(mesh, 0)))).backward();
    }
  });
}

TEST(Methods, ReadingWhatBackwardDoesNotUnshardThrows) {
  on_chain({{"dp", 2}}, {}, [](Chain& chain, const DeviceMesh& mesh) {
    FsdpModule(*chain.layers[1]).set_unshard_in_backward(false);
    const Tensor loss = sum(square(chain(rows_of(mesh, 0))));
    EXPECT_NE(error_of<std::runtime_error>([&] { loss.backward(); }).find("second.weight"),
              std::string::npos);
    FsdpModule(chain).reset_iter_state();
    FsdpModule(*chain.layers[1]).set_unshard_in_backward(true);
    sum(square(chain(rows_of(mesh, 0)))).backward();
  });
}

/// Sums of earlier steps pass the hook and the factor once only.
TEST(Methods, HooksAndFactorsChangeEachSumOnce) {
  const Values expected = plain_gradients(3, 4);
  for (const Mesh& given : meshes()) {
    for (bool each : {false, true}) {
      on_chain(given.axes, {.strategy = given.strategy}, [&](Chain& chain, const DeviceMesh& mesh) {
        std::vector<Module*> units{&chain};
        for (const auto& layer : chain.layers) units.push_back(layer.get());
        int calls = 0;
        for (Module* unit : units) {
          FsdpModule(*unit).set_gradient_divide_factor(2);
          FsdpModule(*unit).set_all_reduce_hook([&](const Tensor& gradients) {
            ++calls;
            mul_(gradients, 0.5);
          });
        }
        for (int micro = 0; micro < 3; ++micro) {
          const NoSync hold(chain, !each && micro < 2);
          sum(square(chain(rows_of(mesh, micro)))).backward();
        }
        EXPECT_GE(calls, 3);
        expect_near(gradients_of(chain), expected, concat(given.name, " on ", mesh.size()));
      });
    }
  }
}

TEST(Methods, CustomCollectivesReplaceTheOwnOnes) {
  const Values expected = plain_gradients(2);
  on_chain({{"dp", 3}}, {}, [&](Chain& chain, const DeviceMesh& mesh) {
    int gathers = 0, scatters = 0;
    FsdpModule(*chain.layers[1]).set_custom_all_gather(counted(gathers, true));
    FsdpModule(*chain.layers[1]).set_custom_reduce_scatter(counted(scatters, false));
    for (int micro = 0; micro < 2; ++micro) sum(square(chain(rows_of(mesh, micro)))).backward();
    EXPECT_EQ(gathers, 4);
    EXPECT_EQ(scatters, 2);
    expect_near(gradients_of(chain), expected, "custom");
    FsdpModule(*chain.layers[1]).set_custom_all_gather({});
    chain(rows_of(mesh, 0));
    EXPECT_EQ(gathers, 4);
  });
}

TEST(Methods, KeptStorageKeepsItsAddress) {
  on_chain({{"dp", 2}}, {}, [](Chain& chain, const DeviceMesh& mesh) {
    chain.materialize();
    FsdpModule(chain).set_keep_unsharded_storage(true);
    const ParameterPtr weight = chain.layers[1]->parameters()[0];
    std::vector<const void*> addresses;
    for (int step = 0; step < 3; ++step) {
      FsdpModule(*chain.layers[1]).unshard();
      addresses.push_back(weight->tensor().block().data);
      FsdpModule(*chain.layers[1]).reshard();
      sum(square(chain(rows_of(mesh, 0)))).backward();
    }
    EXPECT_EQ(addresses[0], addresses[1]);
    EXPECT_EQ(addresses[0], addresses[2]);
  });
}

TEST(Methods, GradientsUnderWayCannotBeRead) {
  on_chain({{"dp", 2}}, {}, [](Chain& chain, const DeviceMesh& mesh) {
    FsdpModule(chain).set_is_last_backward(false);
    sum(square(chain(rows_of(mesh, 0)))).backward();
    const Tensor gradient = chain.parameters()[0]->grad();
    EXPECT_NE(error_of<std::runtime_error>([&] {
                gradient.local().to_vector<float>();
              }).find("a gradient whose reduction is under way"),
              std::string::npos);
    FsdpModule(chain).finalize_backward();
    chain.parameters()[0]->grad().local().to_vector<float>();
  });
}

TEST(Methods, RefuseWhatHasNoMeaning) {
  run_ranks(2, [](Communicator world) {
    DeviceMesh mesh(world, {{"dp", 2}});
    Chain chain;
    EXPECT_EQ(error_of([&] { FsdpModule of(chain); }),
              "fsdp_module: module is not sharded, expected one that was given to fully_shard");
    shard(chain, mesh);
    FsdpModule root(chain), part(*chain.layers[0]);
    EXPECT_NE(error_of([&] { root.set_force_sum_reduction_for_comms(false); }), "nothing");
    EXPECT_NE(error_of([&] { root.set_reduce_scatter_unused_params(false); }), "nothing");
    EXPECT_NE(error_of([&] { root.set_gradient_divide_factor(0); }), "nothing");
    EXPECT_NE(error_of([&] { part.reset_iter_state(); }), "nothing");
    EXPECT_NE(error_of([&] { part.finalize_backward(); }), "nothing");
    Linear other(2, 2);
    EXPECT_NE(error_of([&] { root.set_modules_to_forward_prefetch({&other}); }), "nothing");
    // The first module has two groups; the error counts modules.
    Chain pair;
    const auto replicated = [](const NamedParameter&) {
      return ShardPlacement{.strategy = Strategy::ddp()};
    };
    fully_shard(*pair.layers[0], mesh, {.shard_placement_fn = replicated});
    fully_shard(pair, mesh);
    EXPECT_EQ(
        error_of([&] {
          FsdpModule(pair).set_modules_to_backward_prefetch({pair.layers[0].get(), &other});
        }),
        "set_modules_to_backward_prefetch: module 1 is not sharded, expected modules that were "
        "given to fully_shard");
    GradientReductionHandle handle;
    root.set_manual_backward_finalization(true);
    sum(square(chain(rows_of(mesh, 0)))).backward();
    EXPECT_NE(error_of([&] { root.set_manual_backward_finalization(false); }), "nothing");
    handle = root.finalize_backward(true);
    root.reset_iter_state();
    EXPECT_NE(error_of<std::runtime_error>([&] { handle.wait(); }), "nothing");
    root.set_manual_backward_finalization(false);
    EXPECT_FALSE(chain.parameters()[0]->grad());
  });
}

const std::vector<std::vector<MeshAxis>> kSharded = {
    {{"dp", 1}}, {{"dp", 2}}, {{"dp", 3}}, {{"across", 2}, {"within", 2}}};

/// A backward that is not that of the last forward is a training step all the same.
TEST(Methods, HoldForABackwardAfterAnEvaluation) {
  const Values expected = plain_gradients(1);
  for (const auto& axes : kSharded) {
    for (const bool keeps_after_forward : {false, true}) {
      on_chain(axes, {}, [&](Chain& chain, const DeviceMesh& mesh) {
        FsdpModule(chain).set_reshard_after_forward(!keeps_after_forward);
        FsdpModule(chain).set_reshard_after_backward(keeps_after_forward);
        const Tensor loss = sum(square(chain(rows_of(mesh, 0))));
        {
          const NoGrad no_grad;
          chain(rows_of(mesh, 1));
        }
        loss.backward();
        const std::string error = error_of<std::runtime_error>(
            [&] { chain.parameters()[2]->tensor().local().to_vector<float>(); });
        EXPECT_EQ(error == "nothing", !keeps_after_forward || mesh.size() == 1) << error;
        expect_near(gradients_of(chain), expected, "after an evaluation");
      });
    }
  }
}

TEST(Methods, FinalizeABackwardAfterAReset) {
  const Values expected = plain_gradients(1);
  for (const auto& axes : kSharded) {
    on_chain(axes, {}, [&](Chain& chain, const DeviceMesh& mesh) {
      FsdpModule(chain).set_manual_backward_finalization(true);
      const Tensor loss = sum(square(chain(rows_of(mesh, 0))));
      FsdpModule(chain).reset_iter_state();
      loss.backward();
      FsdpModule(chain).finalize_backward(true).wait();
      expect_near(gradients_of(chain), expected, "after a reset");
    });
  }
}

/// Two models with one pool hold the buffers of the larger step only.
TEST(Methods, SharedContextsShareBuffers) {
  run_ranks(2, [](Communicator world) {
    DeviceMesh mesh(world, {{"dp", 2}});
    Chain one, other;
    shard(one, mesh);
    shard(other, mesh);
    share_comm_ctx({&one, &other});
    for (Chain* chain : {&one, &other}) {
      for (int step = 0; step < 2; ++step) sum(square((*chain)(rows_of(mesh, 0)))).backward();
      EXPECT_EQ(measured_bytes(*chain).buffers, predicted_bytes(*chain).buffers);
    }
  });
}

}  // namespace
}  // namespace weft

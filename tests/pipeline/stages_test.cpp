// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "tests/pipeline/little_decoder.h"
#include "weft/derivatives.h"
#include "weft/error.h"
#include "weft/extend/deferred_gradients.h"
#include "weft/fsdp_module.h"
#include "weft/layers.h"
#include "weft/transformer_stage.h"

namespace weft {
namespace {

template <class F> std::string error_of(const F& f) {
  try {
    f();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(Stages, KeepTheNamesAndTheInitialValuesOfTheWholeModel) {
  for (const bool tied : {false, true}) {
    run_ranks(1, [&](Communicator) {
      const TransformerConfig config = little_decoder(4, tied);
      const RandomState before = Context::current().random;
      TransformerModel whole(config);
      whole.materialize();
      const uint64_t end = Context::current().random.stream;
      std::map<std::string, std::vector<float>> values;
      for (const NamedParameter& named : whole.named_parameters()) {
        for (const std::string& name : named.names) {
          values[name] = named.parameter->value().to_vector<float>();
        }
      }
      size_t count = 0;
      for (const auto& [first, last] : {std::pair{0, 1}, {1, 3}, {3, 4}}) {
        Context::current().random = before;
        TransformerModel stage(config);
        keep_stage(stage, first, last);
        stage.materialize();
        EXPECT_EQ(Context::current().random.stream, end);
        for (const NamedParameter& named : stage.named_parameters()) {
          ++count;
          EXPECT_EQ(named.parameter->value().to_vector<float>(), values.at(named.name()))
              << named.name();
        }
      }
      EXPECT_EQ(count, values.size());
    });
  }
}

TEST(Stages, RefuseWhatIsNoStage) {
  TransformerConfig config = little_decoder(4);
  const auto kept = [&](int64_t first, int64_t end) {
    return error_of([&] {
      TransformerModel model(config);
      keep_stage(model, first, end);
    });
  };
  const std::string range = ", expected a range of the 4 layers that has one";
  EXPECT_EQ(kept(2, 2), "keep_stage: blocks are 2 to 2" + range);
  EXPECT_EQ(kept(-1, 2), "keep_stage: blocks are -1 to 2" + range);
  EXPECT_EQ(kept(3, 5), "keep_stage: blocks are 3 to 5" + range);
  config = little_decoder(4);
  TransformerModel model(config);
  model.materialize();
  EXPECT_EQ(
      error_of([&] { keep_stage(model, 0, 2); }),
      "keep_stage: parameter model.embed_tokens.weight has memory, expected a declared model");
  config.head = Head::none;
  EXPECT_EQ(kept(0, 2), concat("keep_stage: the model (", config.family,
                               ") is not a decoder with a head, expected one"));
}

TEST(Stages, LaterOnesTakeHiddenStates) {
  TransformerModel model(little_decoder(4));
  keep_stage(model, 1, 3);
  model.materialize();
  EXPECT_EQ(error_of([&] {
              model(zeros({2, 7}, {.dtype = i64}));
            }),
            "model: shape of hidden states is [2, 7], expected [batch, sequence, 24], what the "
            "stage before computes");
  EXPECT_EQ(error_of([&] {
              model.loss(zeros({2, 7, 24}), zeros({2, 7}, {.dtype = i64}));
            }),
            "model: a model without a head has no loss, expected one with a head");
  EXPECT_EQ(run_stage(model, {zeros({2, 7, 24})})[0].shape(), (Shape{2, 7, 24}));
  EXPECT_EQ(error_of([&] { run_stage(model, {}); }),
            "stage: number of inputs is 0, expected ids, or outputs of a stage");
}

TEST(Stages, AreCutByCost) {
  const std::vector<double> costs = block_costs(little_decoder(4), 100);
  ASSERT_EQ(costs.size(), 4U);
  EXPECT_EQ(costs[0], costs[1] + 24);
  EXPECT_EQ(costs[3], costs[1] + 37 * 24);
  // A head of many words is worth two layers.
  TransformerConfig wide = little_decoder(6);
  wide.vocabulary = static_cast<int64_t>(2 * costs[1]) / 24;
  EXPECT_EQ(balanced_stages(block_costs(wide, 100), 2), (std::vector<int>{4, 6}));
}

TEST(Stages, ThePipelineRefusesWhatDoesNotFit) {
  on_mesh({{"pp", 2}}, [](const DeviceMesh& mesh) {
    const TransformerConfig config = little_decoder(3);
    const auto made = [&](const PipelineProgram& program, const std::vector<int>& ends) {
      return error_of([&] { PipelinedTransformer(mesh, config, program, 7, ends); });
    };
    EXPECT_EQ(made(interleaved(2, 2), {}),
              "pipeline: number of stages is 4, expected at most 3, the layers of the model");
    EXPECT_EQ(made(gpipe(2, 2), {2, 2}),
              "pipeline: ends of the stages are 2, 2, expected 2 that rise to 3, the layers of the "
              "model");
    PipelinedTransformer model(mesh, config, gpipe(2, 2), 7, {1, 3});
    EXPECT_EQ(model.ends(), (std::vector<int>{1, 3}));
    EXPECT_EQ(error_of([&] { model.differentiate({{}}, {}); }),
              "pipeline: number of weights is 0, expected 1, that of the batches");
    EXPECT_EQ(error_of([&] { model.module()(Tensors()); }),
              "pipeline: module of several stages is called, expected a call of one of them");
  });
}

/// A stage of any modules whose tie or state does not fit.
TEST(Stages, StatesThatCannotBeSharedAreNamed) {
  on_mesh({{"pp", 2}, {"dp", 2}}, [](const DeviceMesh& mesh) {
    Pipeline pipeline(mesh, gpipe(2, 1));
    const auto linear = std::make_shared<Linear>(3, 3, false);
    linear->materialize();
    const int own = pipeline.position();
    pipeline.add({.stage = own, .module = linear, .run = [=](const Tensors& inputs, int) {
                    const Tensor y = (*linear)(own == 0 ? ones({2, 3}) : inputs[0]);
                    return Tensors{own == 0 ? y : sum(y)};
                  }});
    EXPECT_EQ(error_of([&] {
                pipeline.of_all_stages({.tensors = {{"scale", full({}, 1.0)}}, .numbers = {}});
              }),
              "pipeline: tensor scale has no dims, expected at least one, which the stages share");
    const Tensor uneven = distribute(ones({5}), pipeline.stage_mesh(), {Shard(0, {1, 4})});
    EXPECT_EQ(error_of([&] {
                pipeline.of_all_stages({.tensors = {{"part", uneven}}, .numbers = {}});
              }),
              concat("pipeline: tensor part is laid out as ", uneven.sharding(),
                     ", expected whole tensors and chunks"));
    const Pipeline::State all = pipeline.of_all_stages(
        {.tensors = {{concat("weight", own), linear->parameters()[0]->value()}},
         .numbers = {{concat("steps", own), own}}});
    EXPECT_EQ(all.tensors.size(), 2U);
    EXPECT_EQ(all.numbers, (std::map<std::string, int64_t>{{"steps0", 0}, {"steps1", 1}}));
    EXPECT_EQ(all.tensors.at("weight0").box().shape[0], own == 0 ? 3 : 0);
    EXPECT_EQ(all.tensors.at("weight1").full_tensor().shape(), (Shape{3, 3}));
    pipeline.run();
    EXPECT_GT(pipeline.gradient_norm(linear->parameters()).item(), 0);
    pipeline.tie({0, 1, "weights", "weights"});
    if (own == 0) return;
    EXPECT_EQ(error_of([&] { pipeline.gradient_norm(linear->parameters()); }),
              "pipeline: parameter weights of a tie is missing in its stage, expected it");
  });
}

/// Gradients of inputs come at once, those of weights when they are run, and are the same.
TEST(Stages, DeferredGradientsAreTheSame) {
  const auto gradients = [](bool defers) {
    Linear first(5, 7, true), second(7, 3, true);
    Tensors all;
    run_ranks(1, [&](Communicator) {
      first.materialize(), second.materialize();
      Tensor x = ones({2, 5});
      x.set_requires_grad();
      const Tensor y = sum(second(tanh(first(x))));
      if (!defers) {
        y.backward();
      } else {
        DeferredGradients later;
        {
          const DeferredGradients::Scope scope(later, {x});
          y.backward();
        }
        EXPECT_TRUE(x.grad());
        EXPECT_FALSE(later.is_empty());
        for (Linear* linear : {&first, &second}) {
          EXPECT_FALSE(linear->parameters()[0]->grad());
          EXPECT_TRUE(linear->parameters()[1]->grad());
        }
        later.run();
        EXPECT_TRUE(later.is_empty());
      }
      all = {x.grad()};
      for (Linear* linear : {&first, &second}) {
        for (const ParameterPtr& parameter : linear->parameters()) all.push_back(parameter->grad());
      }
    });
    return all;
  };
  const Tensors expected = gradients(false), made = gradients(true);
  for (size_t i = 0; i < made.size(); ++i) {
    EXPECT_EQ(made[i].to_vector<float>(), expected[i].to_vector<float>()) << i;
  }
}

/// Hooks that follow the accumulation of gradients run for whole ones: as often as without a split.
TEST(Stages, HooksRunAfterTheGradientsOfWeights) {
  for (const bool sharded : {false, true}) {
    std::map<std::string, std::map<std::string, int>> calls;
    std::mutex mutex;
    for (const char* schedule : {"1f1b", "zb"}) {
      on_mesh({{"pp", 2}, {"dp", 1}}, [&](const DeviceMesh& mesh) {
        const auto cut = [](TransformerModel& stage, const DeviceMesh& axes) {
          for (const auto& unit : stage.units()) fully_shard(unit, axes);
          fully_shard(stage, axes);
        };
        LittlePipeline pipeline(mesh, little_decoder(2), pipeline_program(schedule, 2, 3), 0,
                                sharded ? StageCut(cut) : StageCut());
        for (const NamedParameter& named : pipeline.model.named_parameters()) {
          const auto count = [&, name = named.name()](const Tensor& leaf) {
            const std::lock_guard lock(mutex);
            EXPECT_TRUE(leaf.grad()) << name;
            ++calls[schedule][name];
          };
          register_post_accumulate_grad_hook(named.parameter->value(), count);
        }
        pipeline.step(2, 0, false);
      });
    }
    EXPECT_EQ(calls["zb"], calls["1f1b"]) << sharded;
    EXPECT_FALSE(calls["zb"].empty());
  }
}

namespace products {

/// x (a * b): each parameter is an operand of the gradient of the other.
class Product final : public Module {
 public:
  Product() {
    const auto values = [](double mean) { return [mean](const Tensor& of) { fill_(of, mean); }; };
    a_ = declare("a", {4, 4}, values(0.5));
    b_ = declare("b", {4, 4}, values(0.25));
  }

 protected:
  Tensors forward(const Tensors& inputs) override {
    return {matmul(inputs[0], mul(a_->tensor(), b_->tensor()))};
  }

 private:
  ParameterPtr a_, b_;
};

/// Three of them, which are separate units.
class Chain final : public Module {
 public:
  Chain() {
    for (int i = 0; i < 3; ++i)
      parts.push_back(add(concat("part", i), std::make_shared<Product>()));
  }
  std::vector<std::shared_ptr<Product>> parts;

 protected:
  Tensors forward(const Tensors& inputs) override {
    Tensors now = inputs;
    for (const auto& part : parts) now = (*part)(now);
    return now;
  }
};

}  // namespace products

/// Parameters that wait as operands are gathered memory, which FSDP frees in between.
TEST(Stages, ProductsOfGatheredParametersMayWait) {
  std::map<std::string, std::map<int, std::vector<float>>> made;
  std::mutex mutex;
  for (const char* schedule : {"1f1b", "zb"}) {
    on_mesh({{"pp", 2}, {"dp", 2}}, [&](const DeviceMesh& mesh) {
      Pipeline pipeline(mesh, pipeline_program(schedule, 2, 4));
      const int own = pipeline.position();
      const auto module = std::make_shared<products::Chain>();
      for (const auto& part : module->parts) fully_shard(*part, pipeline.stage_mesh());
      fully_shard(*module, pipeline.stage_mesh());
      module->materialize();
      const auto syncs = [module](bool on) {
        FsdpModule sharded(*module);
        if (!on) sharded.set_manual_backward_finalization(true);
        sharded.set_requires_gradient_sync(on);
        if (on) sharded.finalize_backward();
      };
      const DeviceMesh stages = pipeline.stage_mesh();
      pipeline.add({.stage = own,
                    .module = module,
                    .run =
                        [=](const Tensors& inputs, int m) {
                          const Tensor x = distribute(full({2, 4}, m + 1.0), stages, {Shard(0)});
                          const Tensor y = (*module)(own == 0 ? x : inputs[0]);
                          return Tensors{own == 0 ? y : sum(mul(y, y))};
                        },
                    .begin = [=] { syncs(false); },
                    .reduce = [=] { syncs(true); }});
      pipeline.run();
      const std::vector<float> first =
          module->parameters()[0]->grad().full_tensor().to_vector<float>();
      const std::vector<float> second =
          module->parameters()[1]->grad().full_tensor().to_vector<float>();
      const std::lock_guard lock(mutex);
      made[schedule][2 * own] = first;
      made[schedule][2 * own + 1] = second;
    });
  }
  EXPECT_EQ(made["zb"], made["1f1b"]);
  EXPECT_NE(made["zb"][0][0], 0);
  EXPECT_EQ(made["zb"][1][0], 2 * made["zb"][0][0]);
}

}  // namespace
}  // namespace weft

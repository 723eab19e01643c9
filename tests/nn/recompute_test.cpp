// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/scratch.h"
#include "weft/autograd.h"
#include "weft/context.h"
#include "weft/layers.h"
#include "weft/module.h"
#include "weft/ops.h"

namespace weft {

/// A layer with dropout that counts its forward runs.
class Noisy final : public Module {
 public:
  Noisy() { linear_ = add("linear", std::make_shared<Linear>(5, 5, true, 0.5)); }
  int runs = 0;

 protected:
  Tensors forward(const Tensors& inputs) override {
    ++runs;
    return {dropout(gelu((*linear_)(inputs[0])), 0.4), inputs[0] * 3};
  }

 private:
  std::shared_ptr<Module> linear_;
};

/// Results of one training step: loss, gradients, and the random state after it.
struct StepResult {
  std::vector<std::vector<float>> values;
  RandomState random;
  int runs;
};

static StepResult noisy_step(bool recompute) {
  manual_seed(3);
  Noisy first, second;
  first.materialize();
  second.materialize();
  first.set_recompute(recompute);
  second.set_recompute(recompute);
  Tensor x = normal({4, 5});
  x.set_requires_grad();
  const Tensors middle = first(Tensors{x});
  const Tensors last = second(Tensors{middle[0] + middle[1]});
  const Tensor loss = sum(last[0] * last[1]);
  loss.backward();
  StepResult result{{loss.to_vector<float>(), x.grad().to_vector<float>()},
                    Context::current().random,
                    first.runs + second.runs};
  for (Module* module : {static_cast<Module*>(&first), static_cast<Module*>(&second)}) {
    for (const ParameterPtr& parameter : module->parameters()) {
      result.values.push_back(parameter->grad().to_vector<float>());
    }
  }
  return result;
}

TEST(Recompute, GivesTheSameBitsWithDropout) {
  const StepResult plain = noisy_step(false), again = noisy_step(true);
  EXPECT_EQ(plain.values, again.values);
  EXPECT_EQ(plain.random, again.random);
  EXPECT_EQ(plain.runs, 2);
  EXPECT_EQ(again.runs, 4);
}

TEST(Recompute, RunsOnceWithoutGradients) {
  Noisy noisy;
  noisy.materialize();
  noisy.set_recompute(true);
  const NoGrad no_grad;
  EXPECT_FALSE(noisy(Tensors{ones({2, 5})})[0].requires_grad());
  EXPECT_EQ(noisy.runs, 1);
}

TEST(Recompute, SavesItsInputsOnly) {
  const auto activations = [](bool recompute) {
    Sequential layers;
    for (int i = 0; i < 4; ++i) layers.append(std::make_shared<Linear>(64, 64));
    layers.materialize();
    layers.set_recompute(recompute);
    Tensor x = ones({256, 64});
    x.set_requires_grad();
    const int64_t before = memory_statistics().total.current;
    const Tensor y = layers(x);
    return memory_statistics().total.current - before;
  };
  const int64_t one = 256 * 64 * 4;
  EXPECT_GE(activations(false), 4 * one);
  EXPECT_LT(activations(true), 2 * one);
}

TEST(Recompute, RefusesAnInputThatWasChanged) {
  Tensor x = ones({3});
  const Tensor other = ones({3}).set_requires_grad();
  const auto run = [](const Tensors& in) { return Tensors{in[0] * in[1]}; };
  const Tensor y = sum(recompute(run, {x, other})[0]);
  fill_(x, 2);
  EXPECT_EQ(error_of([&] { y.backward(); }),
            "recompute: input 0 [3] was changed in place after forward, expected the same values "
            "in backward");
}

TEST(Recompute, PassesNoGradientWhereNoneIsWanted) {
  const Tensor ids = from_values(std::vector<double>{1, 0, 1}, {3}, {.dtype = i64});
  Tensor weight = ones({2, 4});
  weight.set_requires_grad();
  const auto run = [](const Tensors& in) { return Tensors{embedding(in[0], in[1]), in[0] * 2}; };
  const Tensors outputs = recompute(run, {weight, ids});
  sum(outputs[0]).backward();
  EXPECT_EQ(weight.grad().to_vector<float>(), (std::vector<float>{1, 1, 1, 1, 2, 2, 2, 2}));
}

TEST(Recompute, SaysThatAModuleIsGone) {
  Tensor loss;
  {
    Linear layer(2, 2, false);
    layer.materialize();
    layer.set_recompute(true);
    loss = sum(layer(ones({1, 2})));
  }
  EXPECT_EQ(error_of([&] { loss.backward(); }),
            "recompute: the module no longer exists, expected it to exist until backward");
}

/// A module whose second output is undefined.
class Maybe final : public Module {
 public:
  Maybe() { linear_ = add("linear", std::make_shared<Linear>(2, 2, false)); }

 protected:
  Tensors forward(const Tensors& inputs) override { return {(*linear_)(inputs[0]), Tensor()}; }

 private:
  std::shared_ptr<Module> linear_;
};

TEST(Recompute, LetsOutputsBeNone) {
  Maybe module;
  module.materialize();
  module.set_recompute(true);
  const Tensors outputs = module(Tensors{ones({1, 2})});
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_FALSE(outputs[1]);
  sum(outputs[0]).backward();
  EXPECT_EQ(module.parameters()[0]->grad().to_vector<double>(), std::vector<double>(4, 1));
}

TEST(Recompute, ParametersThatChangedAreNamed) {
  Noisy noisy;
  noisy.materialize();
  noisy.set_recompute(true);
  const Tensor loss = sum(noisy(Tensors{ones({2, 5})})[0]);
  {
    NoGrad no_grad;
    fill_(noisy.module("linear").parameters()[0]->value(), 2);
  }
  EXPECT_EQ(error_of([&] { loss.backward(); }),
            "recompute: parameter \"linear.weight\" [5, 5] changed after forward, expected the "
            "same one in backward; call backward before it changes");
}

TEST(Recompute, TheSecondRunIsInTheModeOfTheFirst) {
  std::vector<std::vector<float>> gradients;
  for (const bool recompute : {false, true}) {
    manual_seed(5);
    Dropout layer(0.5);
    layer.set_recompute(recompute);
    Tensor x = normal({6, 5});
    x.set_requires_grad();
    const Tensor loss = sum(layer(Tensors{x})[0]);
    layer.set_training(false);
    loss.backward();
    EXPECT_FALSE(layer.is_training());
    gradients.push_back(x.grad().to_vector<float>());
  }
  EXPECT_EQ(gradients[0], gradients[1]);
}

}  // namespace weft

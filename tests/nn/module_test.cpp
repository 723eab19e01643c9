// SPDX-License-Identifier: Apache-2.0
#include "weft/module.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/scratch.h"
#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/extend/module_sharder.h"
#include "weft/layers.h"
#include "weft/mesh.h"
#include "weft/ops.h"
#include "weft/ranks.h"
#include "weft/transformer.h"

namespace weft {

/// y = (a x) b, with a child between its own parameters.
class Nested final : public Module {
 public:
  Nested() {
    first_ = add("first", std::make_shared<Linear>(3, 2, true));
    declare("scale", {2}, constant_values(2));
    last_ = add("last", std::make_shared<Linear>(2, 3));
  }

 protected:
  Tensors forward(const Tensors& inputs) override {
    return {(*last_)((*first_)(inputs[0]) * used(0))};
  }

 private:
  std::shared_ptr<Module> first_, last_;
};

/// Returns its inputs times `factor`.
class Times final : public Module {
 public:
  explicit Times(double factor) : factor_(factor) {}

 protected:
  Tensors forward(const Tensors& inputs) override {
    Tensors outputs;
    for (const Tensor& input : inputs) outputs.push_back(input * factor_);
    return outputs;
  }

 private:
  double factor_;
};

static std::vector<std::string> names_of(const Module& module) {
  std::vector<std::string> names;
  for (const NamedParameter& named : module.named_parameters()) names.push_back(named.name());
  return names;
}

TEST(Module, NamesOwnParametersBeforeTheChildrens) {
  const Nested nested;
  EXPECT_EQ(names_of(nested),
            (std::vector<std::string>{"scale", "first.weight", "first.bias", "last.weight"}));
  EXPECT_EQ(nested.parameters().size(), 4u);
}

TEST(Module, ATiedParameterIsOneWithTwoNames) {
  TransformerConfig config = transformer_config("tiny");
  config.layers = 1;
  config.tied = true;
  const TransformerModel llama(config);
  const auto named = llama.named_parameters();
  EXPECT_EQ(named[0].names,
            (std::vector<std::string>{"model.embed_tokens.weight", "lm_head.weight"}));
  for (size_t i = 1; i < named.size(); ++i) EXPECT_EQ(named[i].names.size(), 1u);
}

TEST(Module, AChildUnderTwoNamesIsMetOnce) {
  auto shared = std::make_shared<Linear>(2, 2);
  Sequential twice;
  twice.append(shared);
  twice.append(shared);
  ASSERT_EQ(twice.named_parameters().size(), 1u);
  EXPECT_EQ(twice.named_parameters()[0].names, (std::vector<std::string>{"0.weight", "1.weight"}));
  EXPECT_EQ(twice.named_modules().size(), 2u);
}

TEST(Module, FindsModulesByPath) {
  TransformerModel llama(transformer_config("tiny"));
  EXPECT_EQ(&llama.module(""), &llama);
  EXPECT_EQ(&llama.module("model.layers.2"), llama.blocks()[2]);
  EXPECT_EQ(llama.named_modules()[1].first, "model");
  EXPECT_EQ(error_of([&] { llama.module("model.layers.4.mlp"); }),
            "module: \"model.layers.4.mlp\" does not exist: \"model.layers\" has no child \"4\"");
  EXPECT_EQ(error_of([&] { llama.module("head"); }),
            "module: \"head\" does not exist: the module has no child \"head\"");
}

/// Hooks that append `name` before forward and its capital after it.
static ModuleHooks writing(std::string& order, char name) {
  return {.before =
              [&order, name](const Tensors& inputs) {
                order += name;
                return Tensors{inputs[0] + 1};
              },
          .after =
              [&order, name](const Tensors&, const Tensors& outputs) {
                order += static_cast<char>(name - 'a' + 'A');
                return Tensors{outputs[0] * 2 + (name - 'a')};
              }};
}

TEST(Module, HooksRunInTheOrderInWhichTheyWereAdded) {
  Times module(10);
  std::string order;
  for (const char name : {'a', 'b'}) module.add_hooks(writing(order, name));
  EXPECT_EQ(module(full({}, 3)).item(), (3 + 1 + 1) * 10 * 2 * 2 + 1);
  EXPECT_EQ(order, "abAB");
}

TEST(Module, SomeHooksEncloseAllOthers) {
  Times module(1);
  std::string order;
  module.add_hooks(writing(order, 'a'));
  ModuleSharder::enclose(module, writing(order, 'x'));
  module.add_hooks(writing(order, 'b'));
  ModuleSharder::enclose(module, writing(order, 'y'));
  module(full({}, 0));
  EXPECT_EQ(order, "yxabABXY");
}

TEST(Module, HooksAfterForwardSeeWhatItWasGiven) {
  Times module(10);
  double seen = 0;
  module.add_hooks({.before = {}, .after = [&](const Tensors& inputs, const Tensors& outputs) {
                      seen = inputs[0].item();
                      return outputs;
                    }});
  module.add_hooks(
      {.before = [](const Tensors& inputs) { return Tensors{inputs[0] + 2}; }, .after = {}});
  module(full({}, 3));
  EXPECT_EQ(seen, 5);
}

TEST(Module, HooksAddAndRemoveHooks) {
  Times module(1);
  std::string order;
  HookHandle first;
  first = module.add_hooks({.before =
                                [&](const Tensors& inputs) {
                                  first.remove();
                                  for (const char name : {'b', 'c', 'd', 'e', 'f'}) {
                                    module.add_hooks(writing(order, name));
                                  }
                                  return inputs;
                                },
                            .after = {}});
  module.add_hooks(writing(order, 'a'));
  module(full({}, 0));
  EXPECT_EQ(order, "aABCDEF");
  order.clear();
  module(full({}, 0));
  EXPECT_EQ(order, "abcdefABCDEF");
}

TEST(Module, HandlesOutliveTheirModule) {
  std::string order;
  HookHandle handle;
  {
    Times module(1);
    handle = module.add_hooks(writing(order, 'a'));
    HookHandle other = module.add_hooks(writing(order, 'b'));
    other.remove();
    other.remove();
    module(full({}, 0));
    EXPECT_EQ(order, "aA");
  }
  handle.remove();
  HookHandle().remove();
}

TEST(Module, CallsRunAnotherForward) {
  Times module(10);
  std::string order;
  module.add_hooks(writing(order, 'a'));
  module.set_recompute(true);
  const Tensor x = full({}, 3).set_requires_grad();
  const auto squared = [&](const Tensors& inputs) {
    order += '2';
    return Tensors{square(inputs[0])};
  };
  const Tensor y = module.call({x}, squared)[0];
  EXPECT_EQ(y.item(), 2 * 16);
  y.backward();
  EXPECT_EQ(x.grad().item(), 2 * 2 * 4);
  EXPECT_EQ(order, "a2A2");
}

TEST(Module, OneTensorCallNeedsOneResult) {
  Times module(2);
  EXPECT_EQ(module(Tensors{full({}, 1), full({}, 2)})[1].item(), 4);
  class Two final : public Module {
    Tensors forward(const Tensors& inputs) override { return {inputs[0], inputs[0]}; }
  } two;
  EXPECT_EQ(error_of([&] { two(full({}, 1)); }),
            "module: number of its outputs is 2, expected 1; call it with Tensors");
}

TEST(Module, RefusesNamesThatNoPathCanHave) {
  class Named final : public Module {
   public:
    void put(const std::string& name) { declare(name, {1}, constant_values(0)); }
    Tensors forward(const Tensors& inputs) override { return inputs; }
  } named;
  named.put("weight");
  EXPECT_EQ(error_of([&] { named.put("weight"); }),
            "module: \"weight\" exists already, expected another name");
  EXPECT_EQ(
      error_of([&] { named.put("a.b"); }),
      "module: name of a parameter or child is \"a.b\", expected a non-empty one without a dot");
  EXPECT_EQ(error_of([&] { named.set_parameter("bias", named.parameters()[0]); }),
            "set_parameter: parameter \"bias\" does not exist");
  const auto other = std::make_shared<Parameter>(Shape{2}, f32, constant_values(0));
  EXPECT_EQ(error_of([&] { named.set_parameter("weight", other); }),
            "set_parameter: \"weight\" is [2], expected [1]");
}

TEST(Module, InitialValuesMayBeChangedBeforeThereAreAny) {
  Linear layer(2, 3);
  const ParameterPtr weight = layer.parameters()[0];
  weight->set_initializer(constant_values(7));
  layer.materialize();
  EXPECT_EQ(weight->value().to_vector<float>(), std::vector<float>(6, 7));
}

TEST(Module, MembersAreExchangedInTheirPlaces) {
  class Open final : public Module {
   public:
    using Module::declare;
    Tensors forward(const Tensors& inputs) override { return inputs; }
  } open;
  open.declare("a", {1}, constant_values(0));
  open.declare("b", {1}, constant_values(0));
  open.adopt("c", std::make_shared<Times>(2));
  open.adopt("d", std::make_shared<Times>(3));
  const auto other = std::make_shared<Parameter>(Shape{2, 3}, f32, constant_values(0));
  const auto times = std::make_shared<Times>(5);
  open.replace("a", other);
  open.replace("c", times);
  EXPECT_EQ(open.own_parameters()[0].second, other);
  EXPECT_EQ(open.children()[0].second, times);
  EXPECT_EQ(error_of([&] { open.replace("c", other); }), "replace: parameter \"c\" does not exist");
  EXPECT_EQ(error_of([&] { open.replace("a", times); }), "replace: module \"a\" does not exist");
  EXPECT_EQ(error_of([&] { open.replace("a", ParameterPtr()); }),
            "replace: parameter for \"a\" is null, expected a parameter");
  EXPECT_TRUE(open.remove("a") && open.remove("c"));
  EXPECT_FALSE(open.remove("a"));
  EXPECT_EQ(open.named_parameters().size(), 1u);
  EXPECT_EQ(open.children()[0].first, "d");
}

TEST(Module, DeclaresWithoutMemoryAndMaterialisesOnce) {
  Nested nested;
  const ParameterPtr weight = nested.parameters()[1];
  EXPECT_FALSE(weight->is_materialized());
  EXPECT_EQ(weight->value().device(), meta);
  nested.materialize();
  EXPECT_TRUE(weight->is_materialized());
  EXPECT_TRUE(weight->value().requires_grad());
  const auto values = weight->value().to_vector<float>();
  EXPECT_NE(values, std::vector<float>(6, 0.0f));
  EXPECT_EQ(nested.parameters()[0]->value().to_vector<float>(), (std::vector<float>{2, 2}));
  nested.materialize();
  EXPECT_EQ(weight->value().to_vector<float>(), values);
}

TEST(Module, InitialValuesHaveTheirDeviation) {
  manual_seed(7);
  Linear linear(200, 300, true, 0.02);
  linear.materialize();
  const auto values = linear.parameters()[0]->value().to_vector<double>();
  double sum = 0, squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  const auto n = static_cast<double>(values.size());
  EXPECT_NEAR(sum / n, 0, 5 * 0.02 / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(squares / n), 0.02, 0.02 * 5 / std::sqrt(2 * n));
  EXPECT_EQ(linear.parameters()[1]->value().to_vector<float>(), std::vector<float>(300, 0.0f));
}

TEST(Module, FrozenParametersGetNoGradient) {
  Nested nested;
  nested.parameters()[1]->set_trainable(false);
  nested.materialize();
  sum(nested(ones({4, 3}))).backward();
  EXPECT_FALSE(nested.parameters()[1]->grad());
  EXPECT_TRUE(nested.parameters()[2]->grad());
  nested.parameters()[2]->clear_grad();
  EXPECT_FALSE(nested.parameters()[2]->grad());
}

/// Bytes in use grow only by the gradients of trainable parameters.
TEST(Module, FrozenParametersTakeNoGradientMemory) {
  Nested nested;
  nested.materialize();
  for (const ParameterPtr& parameter : nested.parameters()) parameter->set_trainable(false);
  nested.parameters()[1]->set_trainable(true);
  const Tensor x = ones({4, 3});
  const int64_t before = memory_statistics().total.current;
  sum(nested(x)).backward();
  EXPECT_EQ(memory_statistics().total.current - before, 3 * 2 * 4);
}

TEST(Module, HooksCallAdoptedChildren) {
  auto linear = std::make_shared<Linear>(3, 3);
  auto extra = std::make_shared<Linear>(3, 3);
  linear->adopt("extra", extra);
  linear->add_hooks({.before = {}, .after = [extra](const Tensors&, const Tensors& outputs) {
                       return Tensors{outputs[0] + (*extra)(outputs[0])};
                     }});
  EXPECT_EQ(names_of(*linear), (std::vector<std::string>{"weight", "extra.weight"}));
  linear->materialize();
  sum((*linear)(ones({2, 3}))).backward();
  EXPECT_TRUE(extra->parameters()[0]->grad());
  EXPECT_EQ(error_of([&] { linear->adopt("weight", extra); }),
            "module: \"weight\" exists already, expected another name");
}

TEST(Module, DropsOutWhileTraining) {
  Sequential model;
  model.append(std::make_shared<Dropout>(0.5));
  const Tensor x = ones({40, 25});
  const auto zeros_in = [&] {
    const auto values = model(x).to_vector<float>();
    return std::count(values.begin(), values.end(), 0.0f);
  };
  EXPECT_NEAR(static_cast<double>(zeros_in()), 500, 80);
  model.set_training(false);
  EXPECT_FALSE(model.module("0").is_training());
  EXPECT_EQ(zeros_in(), 0);
  model.set_training(true);
  EXPECT_GT(zeros_in(), 0);
  EXPECT_EQ(error_of([] { Dropout(1.5); }), "dropout: probability is 1.5, expected one in [0, 1]");
}

TEST(Module, ASlotKeepsItsShape) {
  Parameter parameter({2, 3}, f32, constant_values(1));
  EXPECT_EQ(error_of([&] {
              parameter.set_value(zeros({3, 2}));
            }),
            "set_value: shape is [3, 2], expected [2, 3], that of the parameter");
  EXPECT_EQ(error_of([&] { parameter.set_value({}); }),
            "set_value: tensor is undefined, expected one of shape [2, 3]");
  ModuleSharder::set_used(parameter, full({2, 3}, 5));
  EXPECT_EQ(parameter.tensor().to_vector<float>()[0], 5);
  ModuleSharder::set_used(parameter, {});
  EXPECT_EQ(parameter.tensor().device(), meta);
}

/// All weights of a small Llama, sharded by rows when a mesh is given.
static std::vector<std::vector<float>> initial_weights(const DeviceMesh& mesh) {
  // dim, layers, heads, kv_heads, head_dim, ffn, vocabulary
  const TransformerConfig config{12, 2, 3, 1, 4, 17, 23};
  TransformerModel llama(config);
  for (const ParameterPtr& parameter : llama.parameters()) {
    if (!mesh) break;
    const TensorOptions options{.device = meta, .sharding = Sharding(mesh, {Shard(0)})};
    parameter->set_value(empty(parameter->shape(), options));
  }
  llama.materialize();
  std::vector<std::vector<float>> weights;
  for (const ParameterPtr& parameter : llama.parameters()) {
    weights.push_back(parameter->value().full_tensor().to_vector<float>());
  }
  return weights;
}

TEST(Module, InitialWeightsAreEqualOnAnyNumberOfRanks) {
  manual_seed(42);
  const auto expected = initial_weights({});
  EXPECT_NE(expected[1], expected[2]);
  for (const int ranks : {1, 2, 3, 4}) {
    run_ranks(ranks,
              [&](Communicator world) {
                const DeviceMesh mesh(world, {{"dp", ranks}});
                EXPECT_EQ(initial_weights(mesh), expected) << ranks << " ranks";
              },
              {.deadline = std::chrono::seconds(20), .seed = 42});
  }
}

}  // namespace weft

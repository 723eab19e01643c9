// SPDX-License-Identifier: Apache-2.0
#include "weft/state_dict.h"

#include <gtest/gtest.h>

#include <bit>

#include "tests/checkpoint/sharded_model.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/layers.h"

namespace weft {
namespace {

TEST(StateDict, SharesTheElementsAndMovesNothing) {
  on_mesh({{"dp", 3}}, [](const DeviceMesh& mesh) {
    ShardedModel model(mesh, {Shard(0)});
    const int64_t bytes = bytes_received(mesh, [&] {
      const StateDict state = state_dict(*model.module);
      ASSERT_EQ(state.tensors.size(), 5u);
      EXPECT_TRUE(state.numbers.empty());
      for (const NamedParameter& named : model.module->named_parameters()) {
        const Tensor& tensor = state.tensors.at(named.name());
        EXPECT_EQ(tensor.storage().get(), named.parameter->value().storage().get());
        EXPECT_EQ(tensor.sharding(), named.parameter->value().sharding());
      }
      const StateDict moments = state_dict(*model.optimizer);
      EXPECT_EQ(moments.tensors.size(), 10u);
      EXPECT_EQ(moments.numbers.at("0.weight.steps"), 0);
      EXPECT_EQ(moments.tensors.at("0.weight.m").block().data,
                model.optimizer->state(0)[0].block().data);
    });
    EXPECT_EQ(bytes, 0);
  });
}

TEST(StateDict, GoesIntoAnotherModelOfAnotherLayout) {
  on_mesh({{"dp", 2}, {"tp", 2}}, [](const DeviceMesh& mesh) {
    ShardedModel from(mesh, {Shard(0), Shard(1)});
    ShardedModel to(mesh, {Replicate(), Shard(0)}, 7);
    from.train(3);
    load_state_dict(*to.module, state_dict(*from.module));
    load_state_dict(*to.optimizer, state_dict(*from.optimizer));
    EXPECT_EQ(to.values(), from.values());
    EXPECT_EQ(to.optimizer->steps(0), 3);
    to.step = from.step;
    expect_values(to.train(2), from.train(2), 1e-5);
  });
}

TEST(StateDict, LoadingItselfChangesNothing) {
  on_mesh({{"dp", 2}}, [](const DeviceMesh& mesh) {
    ShardedModel model(mesh, {Shard(0)});
    model.train(1);
    const std::vector<double> before = model.values();
    load_state_dict(*model.module, state_dict(*model.module));
    load_state_dict(*model.optimizer, state_dict(*model.optimizer));
    EXPECT_EQ(model.values(), before);
  });
}

TEST(StateDict, HoldsTheLearningRateOfEachGroup) {
  const Linear one(2, 3), other(2, 3);
  const auto groups = [&](double first, double second) {
    return std::vector<ParameterGroup<SGDOptions>>{
        {{{{"a"}, one.parameters()[0]}}, {.learning_rate = first}},
        {{{{"b"}, other.parameters()[0]}}, {.learning_rate = second}}};
  };
  SGD from(groups(0.5, 0.25)), to(groups(1, 1));
  load_state_dict(to, state_dict(from));
  EXPECT_EQ(to.learning_rate(0), 0.5);
  EXPECT_EQ(to.learning_rate(1), 0.25);
  SGD turned(std::vector<ParameterGroup<SGDOptions>>{{{{{"b"}, other.parameters()[0]}}, {}},
                                                     {{{{"a"}, one.parameters()[0]}}, {}}});
  load_state_dict(turned, state_dict(from));
  EXPECT_EQ(turned.learning_rate(0), 0.25);
  EXPECT_EQ(turned.learning_rate(1), 0.5);
  SGD whole({{{"a"}, one.parameters()[0]}, {{"b"}, other.parameters()[0]}});
  EXPECT_EQ(
      error_of([&] { load_state_dict(whole, state_dict(from)); }),
      "load_state_dict: option \"lr\" of parameter \"b\" is 0.25, expected 0.5, that of \"a\" "
      "in its group");
  EXPECT_EQ(whole.learning_rate(), SGDOptions().learning_rate);
}

/// The keys of older versions: groups by number, and parameters without names.
TEST(StateDict, TakesGroupsAndParametersByNumber) {
  const Linear one(2, 3), other(2, 3);
  SGD to(std::vector<ParameterGroup<SGDOptions>>{
      {{{{"a"}, one.parameters()[0]}}, {.momentum = 0.5}},
      {{{{"b"}, other.parameters()[0]}}, {.momentum = 0.25}}});
  for (const Linear* layer : {&one, &other}) layer->parameters()[0]->materialize(cpu);
  const auto bits = [](double rate) { return std::bit_cast<int64_t>(rate); };
  StateDict old{{{"0.velocity", ones({3, 2})}, {"1.velocity", full({3, 2}, 2)}},
                {{"0.steps", 3},
                 {"1.steps", 4},
                 {"learning_rate", bits(0.5)},
                 {"learning_rate.1", bits(0.125)}}};
  load_state_dict(to, old);
  EXPECT_EQ(to.learning_rate(0), 0.5);
  EXPECT_EQ(to.learning_rate(1), 0.125);
  EXPECT_EQ(to.steps(1), 4);
  EXPECT_EQ(to.state(1)[0].to_vector<float>(), std::vector<float>(6, 2));
  EXPECT_EQ(to.hyperparameters(1)[1].get(), 0.25);
  old.numbers.emplace("learning_rate.2", bits(1));
  EXPECT_EQ(error_of([&] { load_state_dict(to, old); }),
            "load_state_dict: the dict: it holds \"learning_rate.2\", which nothing expects");
}

TEST(StateDict, TellsAGroupThatIsMissingAmongNumberedOnes) {
  std::vector<ParameterGroup<SGDOptions>> groups;
  const Linear a(2, 3), b(2, 3), c(2, 3);
  for (const Linear* layer : {&a, &b, &c}) {
    layer->parameters()[0]->materialize(cpu);
    groups.push_back({{{{concat(groups.size())}, layer->parameters()[0]}}, {.momentum = 0.5}});
  }
  SGD to(groups);
  const auto bits = [](double rate) { return std::bit_cast<int64_t>(rate); };
  StateDict old{{},
                {{"0.steps", 1},
                 {"1.steps", 1},
                 {"2.steps", 1},
                 {"learning_rate", bits(0.5)},
                 {"learning_rate.1", bits(0.25)}}};
  for (const char* name : {"0", "1", "2"}) {
    old.tensors.emplace(concat(name, ".velocity"), ones({3, 2}));
  }
  EXPECT_EQ(error_of([&] { load_state_dict(to, old); }),
            "load_state_dict: the dict: it lacks \"learning_rate.2\"");
  EXPECT_EQ(to.learning_rate(2), SGDOptions().learning_rate);
  old.numbers.emplace("learning_rate.2", bits(0.125));
  load_state_dict(to, old);
  EXPECT_EQ(to.learning_rate(2), 0.125);
}

TEST(StateDict, GivesNotesOnlyToTheGroupsThatHaveThem) {
  const Linear one(2, 3), other(2, 3);
  const auto made = [&] {
    return SGD(std::vector<ParameterGroup<SGDOptions>>{{{{{"a"}, one.parameters()[0]}}, {}},
                                                       {{{{"b"}, other.parameters()[0]}}, {}}});
  };
  SGD from = made(), to = made();
  from.set(0, "initial_lr", 0.5);
  const StateDict state = state_dict(from);
  EXPECT_TRUE(state.numbers.contains("a.initial_lr"));
  load_state_dict(to, state);
  EXPECT_EQ(to.hyperparameters(0).size(), to.hyperparameters(1).size() + 1);
  EXPECT_EQ(state_dict(to).numbers, state.numbers);
}

/// Adds two layers with one weight, and returns it.
static ParameterPtr append_tied_layers(Sequential& model) {
  auto first = std::make_shared<Linear>(3, 3), second = std::make_shared<Linear>(3, 3);
  const ParameterPtr weight = first->own_parameters()[0].second;
  second->set_parameter("weight", weight);
  model.append(first);
  model.append(second);
  return weight;
}

TEST(StateDict, TakesATiedParameterByAnyName) {
  Sequential model;
  const ParameterPtr tied = append_tied_layers(model);
  model.materialize();
  StateDict state = state_dict(model);
  ASSERT_EQ(state.tensors.size(), 1u);
  const Tensor other = full({3, 3}, 2);
  load_state_dict(model, {{{"1.weight", other}}, {}});
  EXPECT_EQ(tied->value().to_vector<float>(), std::vector<float>(9, 2));
  const Tensor nan = full({3, 3}, std::nan(""));
  load_state_dict(model, {{{"0.weight", nan}, {"1.weight", nan + 1}}, {}});
  EXPECT_EQ(error_of([&] {
              load_state_dict(model, {{{"0.weight", other}, {"1.weight", other + 1}}, {}});
            }),
            "load_state_dict: tensors \"0.weight\" and \"1.weight\" differ, expected equal ones; "
            "they are one tied parameter of the model");
}

TEST(StateDict, AllRanksSeeThatTiedValuesDiffer) {
  on_mesh({{"dp", 3}}, [](const DeviceMesh& mesh) {
    Sequential model;
    const ParameterPtr tied = append_tied_layers(model);
    const TensorOptions by_rows{.sharding = Sharding(mesh, {Shard(0)})};
    tied->set_value(zeros({3, 3}, by_rows));
    // They differ on the first rank alone.
    const Tensor rows = full({3, 3}, 2, by_rows), other = full({3, 3}, 2, by_rows);
    if (rows.box().offset[0] == 0) fill_(other.local(), 1);
    const std::string error = error_of([&] {
      load_state_dict(model, {{{"0.weight", rows}, {"1.weight", other}}, {}});
    });
    EXPECT_NE(error.find("differ, expected equal ones"), error.npos) << error;
  });
}

TEST(StateDict, IsStrictUnlessAskedForTheSkippedKeys) {
  Sequential model;
  model.append(std::make_shared<Linear>(3, 2, true));
  model.materialize();
  AdamW optimizer(model.named_parameters());
  StateDict state = state_dict(model);
  state.tensors.erase("0.bias");
  state.tensors.emplace("0.extra", zeros({1}));
  state.tensors["0.weight"] = full({2, 3}, 5);
  EXPECT_EQ(error_of([&] { load_state_dict(model, state); }),
            "load_state_dict: the dict: it lacks \"0.bias\" and holds \"0.extra\", which nothing "
            "expects");
  EXPECT_NE(state_dict(model).tensors.at("0.weight").to_vector<float>()[0], 5);
  const SkippedKeys skipped = load_common_keys(model, state);
  EXPECT_EQ(skipped, (SkippedKeys{{"0.bias"}, {"0.extra"}}));
  EXPECT_EQ(state_dict(model).tensors.at("0.weight").to_vector<float>()[0], 5);

  StateDict moments = state_dict(optimizer);
  moments.numbers.erase("learning_rate");
  moments.numbers["0.weight.steps"] = 4;
  EXPECT_EQ(error_of([&] { load_state_dict(optimizer, moments); }),
            "load_state_dict: the dict: it lacks \"learning_rate\"");
  EXPECT_EQ(load_common_keys(optimizer, moments), (SkippedKeys{{"learning_rate"}, {}}));
  EXPECT_EQ(optimizer.steps(0), 4);
}

TEST(StateDict, RejectsWhatDoesNotFit) {
  Sequential model;
  model.append(std::make_shared<Linear>(3, 2));
  EXPECT_EQ(
      error_of([&] { state_dict(model); }),
      "state_dict: parameter \"0.weight\" has no memory, expected some; call materialize first");
  model.materialize();
  EXPECT_EQ(error_of([&] {
              load_state_dict(model, {{{"0.weight", zeros({2, 2})}}, {}});
            }),
            "load_state_dict: tensor \"0.weight\" is [2, 2] f32, expected [2, 3] f32");
  EXPECT_EQ(error_of([&] {
              load_state_dict(model, {{{"0.weight", zeros({2, 3}, {.dtype = bf16})}}, {}});
            }),
            "load_state_dict: tensor \"0.weight\" is [2, 3] bf16, expected [2, 3] f32");
}

TEST(StateDict, JoinsPartsUnderTheirNames) {
  Sequential model;
  model.append(std::make_shared<Linear>(3, 2));
  model.materialize();
  SGD optimizer(model.named_parameters(), {.momentum = 0.5});
  int64_t step = 12;
  RandomState random{.seed = ~uint64_t{0}, .stream = 3};
  TrainingState state;
  state.add("model", model);
  state.add("optimizer", optimizer);
  state.add("step", step);
  state.add("random", random);
  state.add("mask", ones({4}));
  StateDict dict = state.state_dict();
  std::vector<std::string> keys;
  for (const auto& [key, tensor] : dict.tensors) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"mask/value", "model/0.weight",
                                            "optimizer/0.weight.velocity"}));
  dict.numbers["step/value"] = 30;
  dict.numbers["optimizer/0.weight.steps"] = 30;
  dict.numbers["random/seed"] = 5;
  state.take_numbers(dict.numbers);
  EXPECT_EQ(step, 30);
  EXPECT_EQ(random, (RandomState{5, 3}));
  EXPECT_EQ(optimizer.steps(0), 30);
  dict.numbers.erase("step/value");
  EXPECT_EQ(error_of([&] { state.take_numbers(dict.numbers); }),
            "training state: what is loaded: it lacks \"step/value\"");
  EXPECT_EQ(error_of([&] { state.add("step", step); }),
            "training state: part \"step\" exists already, expected another name");
  EXPECT_EQ(error_of([&] { state.add("a/b", step); }),
            "training state: name of a part is \"a/b\", expected a non-empty one without a slash");
}

}  // namespace
}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include "weft/parameter_groups.h"

#include <gtest/gtest.h>

#include "tests/nn/plain_steps.h"
#include "tests/support/scratch.h"

namespace weft {
namespace {

std::vector<NamedParameter> some_parameters() {
  return {named_values("embedding.weight", {3, 2}, 0), named_values("norm.weight", {2}, 1),
          named_values("layer.weight", {2, 2}, 2), named_values("layer.bias", {2}, 3)};
}

TEST(ParameterGroups, FollowPatterns) {
  const auto all = some_parameters();
  const auto groups = groups_by_pattern<AdamOptions>(
      all, {{"^embed", {.learning_rate = 0.5}}, {"weight|norm", {.learning_rate = 0.25}}},
      {.learning_rate = 0.125});
  Adam optimizer(groups);
  ASSERT_EQ(optimizer.groups(), 3);
  EXPECT_EQ(groups[0].parameters.size(), 1);
  EXPECT_EQ(groups[1].parameters[0].name(), "norm.weight");
  EXPECT_EQ(groups[1].parameters[1].name(), "layer.weight");
  EXPECT_EQ(groups[2].parameters[0].name(), "layer.bias");
  EXPECT_EQ(optimizer.learning_rate(2), 0.125);
  EXPECT_EQ(groups_by_pattern<AdamOptions>(all, {{"", {}}}).size(), 1);
}

TEST(ParameterGroups, LeaveDecayToMatrices) {
  const auto all = some_parameters();
  const auto decayed = [&](const DecayPredicate& decays) {
    std::vector<bool> each;
    for (const NamedParameter& named : all) each.push_back(decays(named));
    return each;
  };
  EXPECT_EQ(decayed(no_decay("")), (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(decayed(no_decay("norm|bias|embed", false)),
            (std::vector<bool>{false, false, true, false}));
  EXPECT_EQ(decayed(no_decay("", false)), (std::vector<bool>(4, true)));
}

TEST(ParameterGroups, RefuseANoDecayThatFindsNothing) {
  const auto all = some_parameters();
  const auto error = [&](const std::string& pattern) {
    return error_of([&] { AdamW(all, {.decays = no_decay(pattern)}); });
  };
  EXPECT_EQ(error("wte|wpe"),
            "no_decay: pattern \"wte|wpe\" finds no parameter, expected one of 4, such as "
            "embedding.weight");
  EXPECT_EQ(error("wte|embed"), "nothing");
  EXPECT_EQ(error(""), "nothing");
  // One pattern for all groups must find a parameter in one of them.
  const AdamWOptions options{.decays = no_decay("layer")};
  EXPECT_EQ(groups_by_pattern<AdamWOptions>(all, {{"embed", options}}, options).size(), 2U);
  AdamW optimizer(groups_by_pattern<AdamWOptions>(all, {{"embed", options}}, options));
  EXPECT_EQ(optimizer.groups(), 2U);
}

TEST(ParameterGroups, NamePatternsThatDoNotFit) {
  EXPECT_EQ(error_of([] {
              split_by_patterns(some_parameters(), {"layer", "bias"});
            }),
            "parameter groups: pattern \"bias\" finds no parameter that no other pattern has, "
            "expected at least one of 4");
  EXPECT_EQ(error_of([] { split_by_patterns(some_parameters(), {"("}); }),
            "parameter groups: pattern is \"(\", expected a regular expression");
  EXPECT_EQ(error_of([] { no_decay("["); }),
            "no_decay: pattern is \"[\", expected a regular expression");
}

}  // namespace
}  // namespace weft

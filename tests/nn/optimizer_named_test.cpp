// SPDX-License-Identifier: Apache-2.0
#include "weft/optimizer_named.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/nn/plain_steps.h"
#include "tests/support/scratch.h"

namespace weft {
namespace {

TEST(OptimizerNamed, MakesEachKind) {
  const std::map<std::string, std::vector<std::string>> moments{
      {"adamw", {"m", "v"}}, {"adam", {"m", "v"}}, {"adamw8bit", {"m", "v", "m_scale", "v_scale"}},
      {"lion", {"m"}},       {"muon", {"m", "v"}}, {"sgd", {"velocity"}},
      {"lamb", {"m", "v"}}};
  for (const std::string& name : optimizer_names()) {
    const auto p = named_values("p", {4, 3}, 0);
    const auto optimizer =
        optimizer_named(name, {p}, {.learning_rate = 0.1, .weight_decay = 0.2, .beta1 = 0.7});
    EXPECT_EQ(optimizer->moments(), moments.at(name)) << name;
    EXPECT_EQ(optimizer->learning_rate(), 0.1);
    bool has_beta1 = false;
    for (const Hyperparameter& one : optimizer->hyperparameters(0)) {
      if (one.name == "weight_decay") {
        EXPECT_EQ(one.get(), 0.2);
      }
      has_beta1 |= one.get() == 0.7;
    }
    EXPECT_TRUE(has_beta1) << name;
    const Values before = values_of(p);
    give_gradient(p, 1);
    optimizer->step();
    EXPECT_NE(values_of(p), before) << name;
    EXPECT_EQ(optimizer->name(), name);
    int64_t bytes = 0;
    for (const Tensor& one : optimizer->state(0))
      bytes += one.numel() * static_cast<int64_t>(size_of(one.dtype()));
    EXPECT_EQ(optimizer->state_bytes(), bytes) << name;
    const auto q = named_values("q", {4, 3}, 1);
    EXPECT_EQ(optimizer->copy_for({q.parameter})->steps(0), 1);
  }
}

TEST(OptimizerNamed, NamesWhatDoesNotFit) {
  const auto make = [](const char* name, const NamedOptimizerOptions& options) {
    return error_of([&] { optimizer_named(name, {named_values("p", {2}, 0)}, options); });
  };
  EXPECT_EQ(make("adagrad", {}),
            "optimizer: name is \"adagrad\", expected adamw, adam, adamw8bit, lion, muon, sgd, "
            "lamb");
  EXPECT_EQ(make("muon", {.moments = bf16}), "muon: dtype of moments is bf16, expected f32");
  EXPECT_EQ(make("adamw8bit", {.offload = true}),
            "adamw8bit: tier of the state is host, expected device");
  EXPECT_EQ(make("lion", {.moments = bf16}), "nothing");
}

}  // namespace
}  // namespace weft

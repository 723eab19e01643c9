// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/layers.h"
#include "weft/optimizers.h"

namespace weft {
namespace {

using Values = std::vector<double>;

/// A parameter in plain numbers, and its layout over a mesh of axes a and b.
struct PlainParameter {
  Shape shape;
  Placements placements;
  bool decays;
  Values value = {}, m = {}, v = {};
};

/// Uneven parameters, one that is empty on most ranks, one of several pieces, and one of zeros,
/// whose norm is unusable.
std::vector<PlainParameter> plain_parameters() {
  std::vector<PlainParameter> parameters{
      {{7, 3}, {Shard(0), Replicate()}, true},   {{5}, {Replicate(), Shard(0)}, false},
      {{1, 2}, {Shard(0), Shard(0)}, true},      {{3, 5}, {Replicate(), Shard(1)}, true},
      {{262149}, {Shard(0), Replicate()}, true}, {{4}, {}, true}};
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto count = static_cast<size_t>(parameters[i].shape.product());
    for (size_t j = 0; j < count; ++j) {
      const bool zero = i + 1 == parameters.size();
      parameters[i].value.push_back(zero ? 0 : std::sin(static_cast<double>(1 + j + 3 * i)));
    }
    parameters[i].m.resize(count);
    parameters[i].v.resize(count);
  }
  return parameters;
}

Values gradient_of(const PlainParameter& parameter, size_t i, int step) {
  Values gradient;
  for (int64_t j = 0; j < parameter.shape.product(); ++j) {
    gradient.push_back(std::cos(static_cast<double>(7 * j + 5) + static_cast<double>(i) * step));
  }
  return gradient;
}

double norm_of(const Values& values) {
  double squares = 0;
  for (double value : values) squares += value * value;
  return std::sqrt(squares);
}

constexpr double kRate = 0.05, kBeta1 = 0.8, kBeta2 = 0.95, kEps = 1e-6, kDecay = 0.1;

/// You et al. (2020), algorithm 2, in double, element by element.
void plain_step(PlainParameter& p, const Values& gradient, int step) {
  Values u;
  for (size_t j = 0; j < p.value.size(); ++j) {
    p.m[j] = kBeta1 * p.m[j] + (1 - kBeta1) * gradient[j];
    p.v[j] = kBeta2 * p.v[j] + (1 - kBeta2) * gradient[j] * gradient[j];
    const double m = p.m[j] / (1 - std::pow(kBeta1, step));
    const double v = p.v[j] / (1 - std::pow(kBeta2, step));
    u.push_back(m / (std::sqrt(v) + kEps) + (p.decays ? kDecay * p.value[j] : 0));
  }
  const double weight = norm_of(p.value), direction = norm_of(u);
  const double ratio = weight > 0 && direction > 0 ? weight / direction : 1;
  for (size_t j = 0; j < p.value.size(); ++j) p.value[j] -= kRate * ratio * u[j];
}

LambOptions options() {
  return {.learning_rate = kRate,
          .beta1 = kBeta1,
          .beta2 = kBeta2,
          .eps = kEps,
          .weight_decay = kDecay,
          .decays = [](const NamedParameter& named) { return named.name() != "1"; }};
}

std::vector<NamedParameter> laid_out(const std::vector<PlainParameter>& plain,
                                     const DeviceMesh& mesh) {
  std::vector<NamedParameter> parameters;
  for (const PlainParameter& p : plain) {
    auto parameter = std::make_shared<Parameter>(p.shape, f32, constant_values(0));
    const Tensor whole = from_values(p.value, p.shape);
    const Tensor own = zeros(p.shape, {.sharding = Sharding(mesh, p.placements)});
    copy_(own, distribute(whole, mesh, {}));
    parameter->set_value(own);
    parameters.push_back({{std::to_string(parameters.size())}, parameter});
  }
  return parameters;
}

TEST(Lamb, StepsAsThePlainFormula) {
  for (const auto& [first, second] : {std::pair{1, 1}, {2, 1}, {1, 3}, {2, 2}, {4, 1}}) {
    on_mesh({{"a", first}, {"b", second}}, [](const DeviceMesh& mesh) {
      std::vector<PlainParameter> plain = plain_parameters();
      const auto parameters = laid_out(plain, mesh);
      Lamb optimizer(parameters, options());
      for (int step = 1; step <= 4; ++step) {
        for (size_t i = 0; i < plain.size(); ++i) {
          const Values gradient = gradient_of(plain[i], i, step);
          plain_step(plain[i], gradient, step);
          const Tensor whole = from_values(gradient, plain[i].shape);
          parameters[i].parameter->value().set_grad(distribute(whole, mesh, plain[i].placements));
        }
        const int64_t collectives = mesh.traffic().collectives;
        optimizer.step();
        EXPECT_EQ(mesh.traffic().collectives - collectives, mesh.size() > 1);
        for (size_t i = 0; i < plain.size(); ++i) {
          expect_values(whole_values(parameters[i].parameter->value()), plain[i].value, 2e-6);
        }
      }
    });
  }
}

TEST(Lamb, LeavesParametersWithoutGradientAlone) {
  const Values before{1, 2, 3};
  std::vector<NamedParameter> parameters;
  for (const char* name : {"0", "1"}) {
    auto parameter = std::make_shared<Parameter>(Shape{3}, f32, constant_values(0));
    parameter->set_value(from_values(before, {3}));
    parameters.push_back({{name}, parameter});
  }
  parameters[1].parameter->value().set_grad(ones({3}));
  Lamb optimizer(parameters);
  optimizer.step(full({}, 0.5));
  EXPECT_EQ(parameters[0].parameter->value().to_vector<double>(), before);
  EXPECT_NE(parameters[1].parameter->value().to_vector<double>(), before);
  EXPECT_NEAR(optimizer.state(1)[0].to_vector<double>()[0], 0.05, 1e-7);
}

TEST(Lamb, NamesNumbersThatDoNotFit) {
  auto parameter = std::make_shared<Parameter>(Shape{3}, f32, constant_values(0));
  const std::vector<NamedParameter> parameters{{{"p"}, parameter}};
  EXPECT_EQ(error_of([&] { Lamb(parameters, {.beta2 = 1}); }),
            "lamb: betas are 0.9 and 1, expected both in [0, 1)");
  EXPECT_EQ(error_of([&] { Lamb(parameters, {.weight_decay = -1}); }),
            "lamb: learning rate, eps and weight decay are 0.001, 1e-06 and -1, expected each at "
            "least 0");
}

}  // namespace
}  // namespace weft

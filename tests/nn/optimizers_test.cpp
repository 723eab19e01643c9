// SPDX-License-Identifier: Apache-2.0
#include "weft/optimizers.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "tests/support/scratch.h"
#include "weft/autograd.h"
#include "weft/communicator.h"
#include "weft/error.h"
#include "weft/layers.h"
#include "weft/mesh.h"
#include "weft/ops.h"
#include "weft/ranks.h"

namespace weft {

using Values = std::vector<double>;

static NamedParameter named_parameter(const std::string& name, const Tensor& value) {
  auto parameter = std::make_shared<Parameter>(value.shape(), value.dtype(), constant_values(0));
  parameter->set_value(value);
  return {{name}, parameter};
}

static NamedParameter vector_parameter(const std::string& name, const Values& values) {
  return named_parameter(name, from_values(values, {static_cast<int64_t>(values.size())}));
}

static void give_gradient(const NamedParameter& named, const Values& values) {
  named.parameter->value().set_grad(from_values(values, named.parameter->shape()));
}
static void step_with(Optimizer& optimizer, const NamedParameter& p, const Values& p_gradient,
                      const NamedParameter& q, const Values& q_gradient) {
  give_gradient(p, p_gradient);
  give_gradient(q, q_gradient);
  optimizer.step();
}

static void expect_near(const NamedParameter& named, const Values& expected, double bound = 2e-6) {
  const auto values = named.parameter->value().to_vector<double>();
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], expected[i], bound) << named.name() << " " << i;
  }
}

/// Three steps of gradients; q has none in the first.
static const Values kP{0.5, -1.25, 2.0, 0.0}, kQ{1.0, -3.0};
static const std::vector<Values> kGradientsOfP{
    {0.1, -0.2, 0.3, 0.0}, {-0.4, 0.05, 0.6, 1e-3}, {0.25, 0.5, -2.0, 1e-3}};
static const std::vector<Values> kGradientsOfQ{{}, {2.0, -0.5}, {1.0, 0.25}};

static void three_steps(Optimizer& optimizer, const NamedParameter& p, const NamedParameter& q,
                        const std::vector<std::pair<Values, Values>>& expected) {
  for (size_t i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    give_gradient(p, kGradientsOfP[i]);
    if (!kGradientsOfQ[i].empty()) give_gradient(q, kGradientsOfQ[i]);
    optimizer.step();
    expect_near(p, expected[i].first);
    expect_near(q, expected[i].second);
  }
}

// Values of torch.optim.AdamW(lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1) in f64.
TEST(Optimizers, AdamWStepsAsPyTorchs) {
  const auto p = vector_parameter("p", kP), q = vector_parameter("q", kQ);
  AdamW optimizer(
      {p, q},
      {.learning_rate = 0.05, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1});
  three_steps(optimizer, p, q,
              {{{0.4475004999950001, -1.19375024999875, 1.940000166666111, 0.0}, {1, -3}},
               {{0.4754123825836501, -1.1665794921688108, 1.8814833635069363, -0.03873546454462514},
                {0.9450000249999875, -2.9350000999998}},
               {{0.4734745381869939, -1.1872947753408485, 1.8939294573911105, -0.0830995374507885},
                {0.8942422391619783, -2.9097021692630802}}});
  EXPECT_EQ(optimizer.steps(0), 3);
  EXPECT_EQ(optimizer.steps(1), 2);
}

/// Rounded to nearest, ties to even, like bf16.
float as_bf16(float x) {
  auto bits = std::bit_cast<uint32_t>(x);
  bits += 0x7fff + (bits >> 16 & 1);
  return std::bit_cast<float>(bits & 0xffff0000);
}

/// Compares with a plain loop that rounds m and v after each step.
TEST(Optimizers, AdamWKeepsItsMomentsInBf16) {
  std::vector<float> value = {0.5f, -1.25f, 2.0f}, m(3), v(3);
  const auto p = vector_parameter("p", {0.5, -1.25, 2.0});
  AdamW optimizer({p}, {.learning_rate = 0.05,
                        .beta1 = 0.8,
                        .beta2 = 0.95,
                        .eps = 1e-6,
                        .weight_decay = 0,
                        .moments = bf16});
  EXPECT_EQ(optimizer.state(0)[1].dtype(), bf16);
  for (int step = 1; step <= 5; ++step) {
    std::vector<double> gradient;
    for (size_t i = 0; i < 3; ++i) {
      const float g = static_cast<float>(step) * 0.37f - 1.1f * static_cast<float>(i);
      gradient.push_back(g);
      const float m1 = m[i] + (g - m[i]) * 0.2f, v1 = v[i] * 0.95f + g * g * 0.05f;
      const double root = std::sqrt(v1 / (1 - std::pow(0.95, step)));
      value[i] -= static_cast<float>(0.05 / (1 - std::pow(0.8, step)) * m1 / (root + 1e-6));
      m[i] = as_bf16(m1);
      v[i] = as_bf16(v1);
    }
    give_gradient(p, gradient);
    optimizer.step();
    expect_near(p, {value.begin(), value.end()});
  }
  EXPECT_EQ(optimizer.state(0)[0].to_vector<float>(), m);
  EXPECT_EQ(error_of([&] { AdamW({p}, {.moments = i32}); }),
            "adamw: dtype of moments is i32, expected f32, bf16, f16 or f64");
}

// Values of torch.optim.SGD(lr=0.05, momentum=0.9, weight_decay=0.1).
TEST(Optimizers, SgdStepsAsPyTorchs) {
  const auto p = vector_parameter("p", kP), q = vector_parameter("q", kQ);
  SGD optimizer({p, q}, {.learning_rate = 0.05, .momentum = 0.9, .weight_decay = 0.1});
  three_steps(optimizer, p, q,
              {{{0.4925, -1.23375, 1.975, 0.0}, {1, -3}},
               {{0.5032875, -1.21545625, 1.912625, -5e-05}, {0.895, -2.96}},
               {{0.4979798125, -1.21791459375, 1.946924375, -0.00014475}, {0.746025, -2.9217}}});
}

TEST(Optimizers, DecaysWhatThePredicateSays) {
  const auto p = vector_parameter("p", {1, 2}), q = vector_parameter("q", {1, 2});
  AdamW optimizer({p, q},
                  {.learning_rate = 0.1,
                   .weight_decay = 0.5,
                   .decays = [](const NamedParameter& named) { return named.name() == "p"; }});
  step_with(optimizer, p, {0, 0}, q, {0, 0});
  expect_near(p, {0.95, 1.9});
  expect_near(q, {1, 2});
}

// The numbers are those of torch.optim with the same groups, in f64.

TEST(Optimizers, GroupsOfAdamWHaveTheirOptions) {
  const auto p = vector_parameter("p", kP), q = vector_parameter("q", kQ);
  AdamW optimizer({{{p}, {.learning_rate = 0.1, .weight_decay = 0.5}},
                   {{q}, {.learning_rate = 0.02, .beta1 = 0.8, .beta2 = 0.9, .weight_decay = 0}}});
  EXPECT_EQ(optimizer.groups(), 2);
  EXPECT_EQ(optimizer.group_of(1), 1);
  EXPECT_EQ(optimizer.learning_rate(1), 0.02);
  three_steps(
      optimizer, p, q,
      {{{0.37500001, -1.087500005, 1.800000003, 0.0}, {1.0, -3.0}},
       {{0.412200357, -0.986178191, 1.613481803, -0.07441263}, {0.98, -2.98}},
       {{0.395433856, -0.982114345, 1.569663956, -0.156537203}, {0.961433557, -2.975715437}}});
}

TEST(Optimizers, GroupsOfSgdHaveTheirOptions) {
  const auto p = vector_parameter("p", kP), q = vector_parameter("q", kQ);
  SGD optimizer({{{p}, {.learning_rate = 0.1, .momentum = 0.9, .nesterov = true}},
                 {{q}, {.learning_rate = 0.02, .weight_decay = 0.1}}});
  three_steps(optimizer, p, q,
              {{{0.481, -1.212, 1.943, 0.0}, {1.0, -3.0}},
               {{0.5489, -1.2053, 1.8047, -0.00019}, {0.958, -2.984}},
               {{0.52651, -1.28977, 2.11423, -0.000461}, {0.936084, -2.983032}}});
}

TEST(Optimizers, NesterovCanBeSet) {
  const auto p = vector_parameter("p", {1}), q = vector_parameter("q", {1});
  SGD switched({p}, {.learning_rate = 0.5, .momentum = 0.5});
  SGD nesterov({q}, {.learning_rate = 0.5, .momentum = 0.5, .nesterov = true});
  for (const Hyperparameter& number : switched.hyperparameters(0)) {
    if (number.name == "nesterov") number.set(true);
  }
  give_gradient(p, {1});
  give_gradient(q, {1});
  switched.step();
  nesterov.step();
  expect_near(p, q.parameter->tensor().to_vector<double>());
  expect_near(p, {0.25});
}

TEST(Optimizers, AGroupsNumbersCanBeSet) {
  const auto p = vector_parameter("p", {1, 2}), q = vector_parameter("q", {1, 2});
  SGD optimizer({{{p}, {.learning_rate = 0.5}}, {{q}, {.learning_rate = 0.25}}});
  for (const Hyperparameter& number : optimizer.hyperparameters(1)) {
    if (number.name == "weight_decay") number.set(2);
  }
  optimizer.set_learning_rate(0, 1);
  step_with(optimizer, p, {1, 1}, q, {1, 1});
  expect_near(p, {0, 1});
  expect_near(q, {0.25, 0.75});
}

/// Neighbours in memory with different options are updated by separate calls.
TEST(Optimizers, AdjacentParametersOfTwoGroups) {
  const Tensor values = ones({4}), gradients = ones({4});
  std::vector<NamedParameter> named;
  for (int64_t i = 0; i < 2; ++i) {
    named.push_back(named_parameter(concat(i), tensor_in(values.storage(), 2 * i, {2}, f32)));
    named.back().parameter->value().set_grad(tensor_in(gradients.storage(), 2 * i, {2}, f32));
  }
  SGD optimizer({{{named[0]}, {.learning_rate = 1}}, {{named[1]}, {.learning_rate = 2}}});
  optimizer.step();
  expect_near(named[0], {0, 0});
  expect_near(named[1], {-1, -1});
}

TEST(Optimizers, RefuseGroupsThatDoNotFit) {
  const auto p = vector_parameter("p", {1, 2}), q = vector_parameter("q", {1, 2});
  EXPECT_EQ(error_of([&] {
              AdamW({{{p}, {.moments = bf16}}, {{q}, {}}});
            }),
            "adamw: moments is f32 in group 1, expected bf16, that of group 0");
  EXPECT_EQ(error_of([&] { SGD({p}, {.nesterov = true}); }),
            "sgd: nesterov with momentum 0, expected a momentum above 0");
  EXPECT_EQ(error_of([&] {
              AdamW({{{p}, {}}, {{p}, {}}});
            }),
            "optimizer: parameter p is given twice, expected once");
  EXPECT_EQ(error_of([&] { SGD({p}).set_learning_rate(1, 0.5); }),
            "optimizer: group is 1, expected one below 1");
}

TEST(Optimizers, TheRateMayChangeAndTheGradientBeScaled) {
  const auto p = vector_parameter("p", {1, -1});
  SGD optimizer({p}, {.learning_rate = 100});
  optimizer.set_learning_rate(0.5);
  give_gradient(p, {2, 4});
  optimizer.step(full({}, 0.25));
  expect_near(p, {0.75, -1.5});
}

/// Parameters and gradients that share one block of memory each, as after sharding.
struct AdjacentParameters {
  explicit AdjacentParameters(int count)
      : values(from_values(Values(static_cast<size_t>(6 * count), 1.0), {6 * count})),
        gradients(ones({6 * count})) {
    for (int i = 0; i < count; ++i) {
      named.push_back(named_parameter("p" + std::to_string(i),
                                      tensor_in(values.storage(), 6 * i, {2, 3}, f32)));
      named.back().parameter->value().set_grad(tensor_in(gradients.storage(), 6 * i, {2, 3}, f32));
    }
  }
  Tensor values, gradients;
  std::vector<NamedParameter> named;
};

static int64_t calls_of(const std::function<void()>& function) {
  const int64_t before = engine_statistics().calls;
  function();
  return engine_statistics().calls - before;
}

TEST(Optimizers, AdjacentParametersAreUpdatedByOneCall) {
  AdjacentParameters adjacent(5);
  // The order in which they are passed does not matter.
  std::swap(adjacent.named[0], adjacent.named[3]);
  AdamW optimizer(adjacent.named, {.learning_rate = 0.1, .weight_decay = 0});
  optimizer.step();
  EXPECT_EQ(calls_of([&] { optimizer.step(); }), 1);
  for (const double value : adjacent.values.to_vector<double>()) EXPECT_NEAR(value, 0.8, 1e-5);
}

TEST(Optimizers, AParameterWithoutGradientPartsARun) {
  AdjacentParameters adjacent(5);
  SGD optimizer(adjacent.named, {.learning_rate = 0.25});
  optimizer.step();
  const Tensor gradient = adjacent.named[2].parameter->grad();
  adjacent.named[2].parameter->clear_grad();
  EXPECT_EQ(calls_of([&] { optimizer.step(); }), 2);
  expect_near(adjacent.named[2], Values(6, 0.75));
  expect_near(adjacent.named[3], Values(6, 0.5));
  adjacent.named[2].parameter->value().set_grad(gradient);
  EXPECT_EQ(calls_of([&] { optimizer.step(); }), 3) << "its number of steps is another";
  expect_near(adjacent.named[2], Values(6, 0.5));
  expect_near(adjacent.named[3], Values(6, 0.25));
}

TEST(Optimizers, WhatDecaysOtherwisePartsARun) {
  AdjacentParameters adjacent(3);
  const auto decays = [](const NamedParameter& named) { return named.name() == "p1"; };
  SGD optimizer(adjacent.named, {.learning_rate = 0.5, .weight_decay = 0.5, .decays = decays});
  EXPECT_EQ(calls_of([&] { optimizer.step(); }), 3);
  expect_near(adjacent.named[0], Values(6, 0.5));
  expect_near(adjacent.named[1], Values(6, 0.25));
}

TEST(Optimizers, FollowsValuesThatMoved) {
  AdjacentParameters adjacent(3);
  SGD optimizer(adjacent.named, {.learning_rate = 0.25});
  optimizer.step();
  const Tensor gradient = adjacent.named[1].parameter->grad();
  adjacent.named[1].parameter->set_value(full({2, 3}, 5));
  adjacent.named[1].parameter->value().set_grad(gradient);
  optimizer.step();
  expect_near(adjacent.named[0], Values(6, 0.5));
  expect_near(adjacent.named[1], Values(6, 4.75));
  EXPECT_EQ(adjacent.values.to_vector<double>()[6], 0.75);
}

TEST(Optimizers, StateLiesAsTheParameters) {
  AdjacentParameters adjacent(2);
  AdamW optimizer(adjacent.named);
  EXPECT_EQ(optimizer.moments(), (std::vector<std::string>{"m", "v"}));
  EXPECT_EQ(optimizer.state(1)[0].shape(), (Shape{2, 3}));
  EXPECT_EQ(optimizer.state(0)[1].storage().get(), optimizer.state(1)[1].storage().get());
  optimizer.step();
  EXPECT_NEAR(optimizer.state(1)[0].to_vector<double>()[5], 0.1, 1e-7);
  EXPECT_NEAR(optimizer.state(1)[1].to_vector<double>()[5], 0.001, 1e-7);
}

TEST(Optimizers, DescentWithoutMomentumRemembersNothing) {
  AdjacentParameters adjacent(2);
  SGD optimizer(adjacent.named);
  EXPECT_TRUE(optimizer.moments().empty());
  EXPECT_TRUE(optimizer.state(0).empty());
}

TEST(Optimizers, NamesWhatIsMissing) {
  const auto p = vector_parameter("p", {1, 2});
  AdamW optimizer({p});
  EXPECT_EQ(error_of([&] { optimizer.step(); }),
            "optimizer: number of gradients is 0, expected at least one for 1 parameters, the "
            "first of which is p; call backward first");
  const Linear declared(2, 2);
  SGD early(declared.named_parameters());
  EXPECT_EQ(error_of([&] { early.step(); }),
            "optimizer: parameter weight has no memory, expected some; call materialize first");
  p.parameter->set_trainable(false);
  EXPECT_EQ(error_of([&] { AdamW{{p}}; }),
            "optimizer: number of trainable parameters is 0, expected at least 1");
  EXPECT_EQ(error_of([&] { AdamW({vector_parameter("q", {1})}, {.beta1 = 1}); }),
            "adamw: betas are 1 and 0.999, expected both in [0, 1)");
  EXPECT_EQ(
      error_of([&] { SGD({vector_parameter("q", {1})}, {.learning_rate = -1}); }),
      "sgd: learning rate, momentum and weight decay are -1, 0 and 0, expected each at least 0");
}

TEST(Optimizers, ClipsAsPyTorchs) {
  const auto p = vector_parameter("p", {0, 0, 0, 0}), q = vector_parameter("q", {0, 0});
  give_gradient(p, {3, 0, 0, 4});
  give_gradient(q, {12, 0});
  const std::vector<ParameterPtr> both{p.parameter, q.parameter};
  EXPECT_NEAR(gradient_norm(both).item(), 13, 1e-5);
  EXPECT_NEAR(clip_scale(full({}, 13), 6.5).item(), 0.5, 1e-6);
  EXPECT_EQ(clip_scale(full({}, 3), 6.5).item(), 1);
  EXPECT_NEAR(clip_grad_norm(both, 6.5), 13, 1e-5);
  const Values clipped = p.parameter->grad().to_vector<double>();
  EXPECT_NEAR(clipped[0], 1.4999998846, 1e-6);
  EXPECT_NEAR(clipped[3], 1.9999998462, 1e-6);
  EXPECT_NEAR(q.parameter->grad().to_vector<double>()[0], 5.9999995385, 2e-6);
  EXPECT_EQ(error_of([&] { clip_scale(full({}, 1), 0); }),
            "clip: max_norm is 0, expected one above 0");
  const auto none = vector_parameter("n", {1});
  EXPECT_EQ(error_of([&] { gradient_norm({none.parameter}); }),
            "gradient norm: number of gradients is 0, expected at least one of 1");
}

/// A parameter [rows, 2] with gradient 1, 2, 3, ..., with that layout.
static ParameterPtr laid_out(const DeviceMesh& mesh, const Placements& placements, int64_t rows) {
  Values numbers;
  for (int64_t i = 0; i < rows * 2; ++i) numbers.push_back(static_cast<double>(i + 1));
  const Tensor whole = from_values(numbers, {rows, 2});
  const auto named = named_parameter("p", distribute(zeros({rows, 2}), mesh, placements));
  named.parameter->value().set_grad(distribute(whole, mesh, placements));
  return named.parameter;
}

TEST(Optimizers, TheNormIsThatOfTheWholeGradients) {
  const auto squares_to = [](int n) { return n * (n + 1) * (2 * n + 1) / 6.0; };
  const double expected = std::sqrt(squares_to(14) + squares_to(2) + squares_to(10) + 25);
  for (const auto& [first, second] : {std::pair{1, 1}, {3, 1}, {2, 2}, {1, 4}}) {
    run_ranks(first * second,
              [&, a = first, b = second](Communicator world) {
                const DeviceMesh mesh(world, {{"a", a}, {"b", b}});
                const auto alone = vector_parameter("alone", {0, 0});
                give_gradient(alone, {3, 4});
                const std::vector<ParameterPtr> parameters{
                    laid_out(mesh, {Shard(0), Shard(0)}, 7),
                    laid_out(mesh, {Shard(0), Replicate()}, 1),
                    laid_out(mesh, {Replicate(), Shard(0)}, 5), alone.parameter};
                EXPECT_NEAR(gradient_norm(parameters).item(), expected, 1e-4);
                const std::vector<ParameterPtr> whole{laid_out(mesh, {}, 7)};
                const int64_t bytes = engine_statistics().implicit_bytes;
                EXPECT_NEAR(gradient_norm(whole).item(), std::sqrt(squares_to(14)), 1e-4);
                EXPECT_EQ(engine_statistics().implicit_bytes, bytes);
                clip_grad_norm(parameters, 1);
                EXPECT_NEAR(gradient_norm(parameters).item(), 1, 1e-4);
              },
              {.deadline = std::chrono::seconds(20)});
  }
}

TEST(Optimizers, RefusesGradientsThatLieDifferently) {
  run_ranks(2, [](Communicator world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    const auto parameter = laid_out(mesh, {Shard(0)}, 4);
    parameter->value().set_grad(distribute(ones({4, 2}), mesh, {}));
    AdamW optimizer({{{"p"}, parameter}});
    EXPECT_EQ(error_of([&] { optimizer.step(); }),
              "optimizer: parameter p has a gradient laid out as mesh(dp=2)[R], expected "
              "mesh(dp=2)[S(0)], the layout of the parameter");
    parameter->value().set_grad(from_local(ones({4, 2}), mesh, {Partial()}, {4, 2}));
    EXPECT_EQ(
        error_of([&] { gradient_norm({parameter}); }),
        "gradient norm: a gradient [4, 2] is laid out as mesh(dp=2)[P(sum)], expected no Partial");
  });
}

namespace {

/// Two moments, the second of which there is no memory for at first.
class ShortOfMemory final : public Optimizer {
 public:
  explicit ShortOfMemory(const NamedParameter& parameter) : Optimizer({{parameter}}, {1}) {}
  std::vector<std::string> moments() const override { return {"first", "second"}; }

 private:
  void update(const Update&) override {}
  int kind_of(size_t) const override { return 0; }
  DType moment_dtype() const override {
    if (++calls_ == 2) throw std::runtime_error("no memory");
    return f32;
  }
  mutable int calls_ = 0;
};

}  // namespace

TEST(Optimizers, AStateThatCouldNotBeMadeIsMadeAnew) {
  ShortOfMemory optimizer(vector_parameter("p", kP));
  EXPECT_THROW(optimizer.state(0), std::runtime_error);
  EXPECT_EQ(optimizer.state(0).size(), 2U);
}

TEST(Optimizers, AnEmptyShardTakesPart) {
  run_ranks(3, [](Communicator world) {
    const DeviceMesh mesh(world, {{"dp", 3}});
    const auto parameter = laid_out(mesh, {Shard(0)}, 2);
    SGD optimizer({{{"p"}, parameter}}, {.learning_rate = 1, .momentum = 0.5});
    optimizer.step(clip_scale(gradient_norm({parameter}), 1e9));
    EXPECT_EQ(optimizer.steps(0), 1);
    EXPECT_EQ(optimizer.state(0)[0].shape(), (Shape{2, 2}));
    EXPECT_EQ(parameter->value().full_tensor().to_vector<float>(),
              (std::vector<float>{-1, -2, -3, -4}));
  });
}

}  // namespace weft

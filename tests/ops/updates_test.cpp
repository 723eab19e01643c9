// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/tensor_body.h"
#include "tests/ops/agreement.h"
#include "tests/support/scratch.h"
#include "weft/ops/in_place.h"
#include "weft/ranks.h"

namespace weft {

namespace {

/// Parameter, gradient and optimizer state.
struct Update {
  Array parameter = random_array({5, 7}, -2, 2);
  Array m = random_array({5, 7}, -1, 1, f32, 2);
  Array v = random_array({5, 7}, 0.1, 1, f32, 3);
  Array gradient = random_array({5, 7}, -1, 1, f32, 4);
};

constexpr AdamWStep kStep{0.1, 0.8, 0.95, 1e-6, 0.05, 3};

/// The formula of Loshchilov and Hutter, with the gradient times `scale`.
void plain_adamw(Update& u, double scale) {
  const double correct_m = 1 - std::pow(kStep.beta1, kStep.step);
  const double correct_v = 1 - std::pow(kStep.beta2, kStep.step);
  for (size_t i = 0; i < u.m.values.size(); ++i) {
    double &p = u.parameter.values[i], &m = u.m.values[i], &v = u.v.values[i];
    const double g = u.gradient.values[i] * scale;
    m = kStep.beta1 * m + (1 - kStep.beta1) * g;
    v = kStep.beta2 * v + (1 - kStep.beta2) * g * g;
    p -= kStep.learning_rate *
         (m / correct_m / (std::sqrt(v / correct_v) + kStep.eps) + kStep.weight_decay * p);
  }
}

}  // namespace

TEST(Updates, AdamwEqualsItsFormula) {
  Update u;
  Tensor p = u.parameter.on(), m = u.m.on(), v = u.v.on();
  for (const Shape& shape : {Shape{}, Shape{1}}) {
    adamw_(p, m, v, u.gradient.on(), full(shape, 0.5), kStep);
    plain_adamw(u, 0.5);
    expect_close(whole(p), u.parameter, 1e-6, "parameter");
    expect_close(whole(m), u.m, 1e-6, "m");
    expect_close(whole(v), u.v, 1e-6, "v");
  }
}

TEST(Updates, AdamwWorksOnSharesOfAParameter) {
  run_ranks(4, [](Communicator world) {
    DeviceMesh mesh(world, {{"x", 2}, {"y", 2}});
    Update u;
    const Sharding cut(mesh, {Shard(1), Shard(0)});
    Tensor p = u.parameter.on(cut), m = u.m.on(cut), v = u.v.on(cut);
    Tensor gradient = u.gradient.on(Sharding(mesh, {Shard(1), Replicate()}));
    adamw_(p, m, v, gradient, full({}, 2, {.sharding = Sharding(mesh, Placements{})}), kStep);
    EXPECT_TRUE(p.sharding() == cut);
    plain_adamw(u, 2);
    expect_close(whole(p), u.parameter, 1e-6, "parameter");
    expect_close(whole(v), u.v, 1e-6, "v");
  });
}

TEST(Updates, AdamwOfALeafIsNotRecorded) {
  Update u;
  Tensor p = u.parameter.on(), m = u.m.on(), v = u.v.on();
  p.set_requires_grad();
  const uint64_t version = p.storage()->version();
  adamw_(p, m, v, u.gradient.on(), ones({}), kStep);
  EXPECT_TRUE(p.is_leaf());
  EXPECT_GT(p.storage()->version(), version);
}

TEST(Updates, SgdEqualsItsFormula) {
  Update u;
  Tensor p = u.parameter.on(), velocity = u.m.on(), q = u.parameter.on();
  sgd_(p, velocity, u.gradient.on(), full({}, 0.5), 0.1, 0.9, 0.05);
  sgd_(q, Tensor(), u.gradient.on(), full({}, 0.5), 0.1, 0, 0.05);
  Array plain = u.parameter;
  for (size_t i = 0; i < plain.values.size(); ++i) {
    const double g = 0.5 * u.gradient.values[i] + 0.05 * plain.values[i];
    u.m.values[i] = 0.9 * u.m.values[i] + g;
    u.parameter.values[i] -= 0.1 * u.m.values[i];
    plain.values[i] -= 0.1 * g;
  }
  expect_close(whole(p), u.parameter, 1e-6, "with momentum");
  expect_close(whole(velocity), u.m, 1e-6, "velocity");
  expect_close(whole(q), plain, 1e-6, "without momentum");
}

TEST(Updates, ColumnsOfOneMatrixShareNoElement) {
  const Tensor matrix = full({5, 3}, 1);
  const auto columns = [&](int64_t begin, int64_t end) {
    return slice(matrix, 1, begin, end).block();
  };
  EXPECT_FALSE(is_disturbed(columns(0, 1), columns(1, 2)));
  EXPECT_FALSE(is_disturbed(columns(2, 3), columns(0, 1)));
  EXPECT_TRUE(is_disturbed(columns(0, 2), columns(1, 3)));
  EXPECT_TRUE(is_disturbed(columns(0, 1), matrix.block()));
  EXPECT_FALSE(is_disturbed(matrix.block(), matrix.block()));
}

TEST(Updates, ScaleChangesInPlace) {
  Tensor a = Array{{3}, {1, -2, 4}}.on();
  scale_(a, full({1}, 0.5));
  EXPECT_EQ(a.to_vector<double>(), (std::vector<double>{0.5, -1, 2}));
}

TEST(Updates, AddScaledChangesInPlace) {
  Tensor a = Array{{3}, {1, -2, 4}}.on(), x = Array{{3}, {2, 2, -6}}.on();
  add_scaled_(a, x, full({1}, 0.5), 3);
  EXPECT_EQ(a.to_vector<double>(), (std::vector<double>{4, 1, -5}));
}

TEST(Updates, AreSeenByWhatSavedTheirOperands) {
  Update u;
  Tensor p = u.parameter.on(), velocity = u.m.on(), gradient = u.gradient.on(), one = ones({});
  for (int update = 0; update < 3; ++update) {
    Tensor x = u.gradient.on();
    x.set_requires_grad();
    Tensor product = sum(x * p);
    if (update == 0) sgd_(p, velocity, gradient, one, 0.1, 0.9, 0);
    if (update == 1) sgd_(p, Tensor(), gradient, one, 0.1, 0, 0);
    if (update == 2) scale_(p, one);
    EXPECT_NE(error_of([&] { product.backward(); }).find("was changed in place after forward"),
              std::string::npos);
  }
}

TEST(Updates, ScaleOfAPartialMovesNothing) {
  run_ranks(3, [](Communicator world) {
    DeviceMesh mesh(world, {{"x", 3}});
    Tensor total = sum(ones({7, 2}, {.sharding = Sharding(mesh, {Shard(0)})}), {0});
    TrafficScope scope(Traffic::forbid);
    scale_(total, full({}, 2, {.sharding = Sharding(mesh, {Replicate()})}));
    EXPECT_TRUE(total.sharding()[0] == Placement(Partial()));
    TrafficScope allow(Traffic::allow);
    EXPECT_EQ(total.full_tensor().to_vector<double>(), (std::vector<double>{14, 14}));
  });
}

TEST(Updates, SayWhatIsWrong) {
  const Tensor a = zeros({3}), b = zeros({2}), one = ones({});
  EXPECT_EQ(error_of([&] { adamw_(a, a, b, a, one, {}); }),
            "adamw_: v is [2], expected [3], the shape of the parameter");
  EXPECT_EQ(error_of([&] { adamw_(a, a, a, a, a, {}); }),
            "adamw_: factor is [3], expected one element");
  EXPECT_EQ(error_of([&] { adamw_(a, a, a, a, one, {.step = 0}); }),
            "adamw_: step must be at least 1, got 0");
  EXPECT_EQ(error_of([&] { sgd_(a, Tensor(), a, one, 0.1, 0.9, 0); }),
            "sgd_: velocity is missing, expected one for momentum 0.9");
  EXPECT_EQ(error_of([&] { scale_(a, Tensor()); }), "scale_: no factor is given, expected one");
}

}  // namespace weft

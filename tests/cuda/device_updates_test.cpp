// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/adamw/adamw.h"
#include "tests/cuda/twin.h"
#include "weft/error.h"

namespace weft {

class DeviceUpdates : public OnGpu {};

struct UpdateCase {
  DType parameter, state, grad;
};
/// Cases with kernels that load 16 bytes at a time, and others.
static constexpr UpdateCase kUpdateCases[] = {
    {DType::f32, DType::f32, DType::f32},   {DType::f32, DType::f32, DType::bf16},
    {DType::bf16, DType::f32, DType::bf16}, {DType::bf16, DType::bf16, DType::bf16},
    {DType::f64, DType::f64, DType::f64},   {DType::f16, DType::f16, DType::f16},
    {DType::bf16, DType::bf16, DType::f32}, {DType::f32, DType::f64, DType::f16},
};
static constexpr int64_t kUpdateSizes[] = {0, 1, 5, 8, 33, 1000};

template <class Check> static void for_updates(const Check& check) {
  for (const UpdateCase& c : kUpdateCases) {
    for (const int64_t n : kUpdateSizes) {
      SCOPED_TRACE(concat(c.parameter, " ", c.state, " ", c.grad, " ", n));
      check(c, n);
    }
  }
}

/// Updates compute in the parameter's dtype, whatever the state's.
static void expect_alike(const UpdateCase& c, std::initializer_list<const Twin*> all) {
  for (const Twin* twin : all) twin->expect_alike_computed_as(c.parameter);
}

TEST_F(DeviceUpdates, AdamW) {
  for_updates([](const UpdateCase& c, int64_t n) {
    const Twin p(Array::random(c.parameter, {n}, Lie::dense, 1));
    const Twin m(Array::random(c.state, {n}, Lie::dense, 2));
    const Twin v(Array::random(c.state, {n}, Lie::dense, 3, 0.1, 2));
    const Twin g(Array::random(c.grad, {n}, Lie::dense, 4));
    for (const int64_t step : {1, 2, 7}) {
      const AdamWNumbers numbers{.learning_rate = 0.1, .weight_decay = 0.1, .step = step};
      for (const Device d : kBothDevices) adamw(p.on(d), m.on(d), v.on(d), g.on(d), numbers);
    }
    expect_alike(c, {&p, &m, &v});
  });
}

TEST_F(DeviceUpdates, RatesThatAreReadWhenTheStepIsDone) {
  for_updates([](const UpdateCase& c, int64_t n) {
    const auto some = [&](DType dtype, unsigned salt, double low) {
      return Array::random(dtype, {n}, Lie::dense, salt, low, 2);
    };
    const Twin p(some(c.parameter, 1, -2)), m(some(c.state, 2, -2)), v(some(c.state, 3, 0.1));
    const Twin p2(some(c.parameter, 1, -2)), m2(some(c.state, 2, -2)), v2(some(c.state, 3, 0.1));
    const Twin g(some(c.grad, 4, -2));
    const AdamWNumbers numbers{.learning_rate = 0.1, .weight_decay = 0.1, .step = 3};
    const auto rates = rates_of(numbers);
    const Twin read(Array::of(DType::f64, {kAdamWRates}, {rates.begin(), rates.end()}));
    for (const Device d : kBothDevices) {
      adamw(p.on(d), m.on(d), v.on(d), g.on(d), numbers);
      // The options differ from the numbers that the rates were computed from.
      adamw(p2.on(d), m2.on(d), v2.on(d), g.on(d), {}, nullptr, &read.on(d));
    }
    expect_alike(c, {&p2, &m2, &v2});
    EXPECT_EQ(p2.fetched(), p.fetched());
  });
}

TEST_F(DeviceUpdates, AGradientFactorStaysOnTheDevice) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    for_updates([&](const UpdateCase& c, int64_t n) {
      const Twin p(Array::random(c.parameter, {n}, Lie::dense, 1));
      const Twin m(Array::random(c.state, {n}, Lie::dense, 2));
      const Twin v(Array::random(c.state, {n}, Lie::dense, 3, 0.1, 2));
      const Twin g(Array::random(c.grad, {n}, Lie::dense, 4));
      const Twin factor(Array::of(dtype, {}, {0.25}));
      for (const Device d : kBothDevices) {
        adamw(p.on(d), m.on(d), v.on(d), g.on(d), {.learning_rate = 0.1}, &factor.on(d));
        sgd(p.on(d), m.on(d), g.on(d), {.learning_rate = 0.1, .momentum = 0.9}, &factor.on(d));
      }
      expect_alike(c, {&p, &m, &v});
    });
  }
}

TEST_F(DeviceUpdates, Sgd) {
  for_updates([](const UpdateCase& c, int64_t n) {
    const Twin p(Array::random(c.parameter, {n}, Lie::dense, 1));
    const Twin velocity(Array::random(c.state, {n}, Lie::dense, 2));
    const Twin g(Array::random(c.grad, {n}, Lie::dense, 4));
    for (const Device d : kBothDevices) {
      sgd(p.on(d), velocity.on(d), g.on(d), {0.1, 0.9, 0.01});
      sgd(p.on(d), {}, g.on(d), {.learning_rate = 0.3, .weight_decay = 0.2});
    }
    expect_alike(c, {&p, &velocity});
  });
}

TEST_F(DeviceUpdates, ElementsThatAreNotAligned) {
  const Twin all(Array::random(DType::f32, {4, 101}));
  for (const Device d : kBothDevices) {
    const auto row = [&](int64_t r) { return all.on(d).part({{r, 1}, {1, 100}}); };
    adamw(row(0), row(1), row(2), row(3), {.learning_rate = 0.1});
  }
  all.expect_alike();
}

TEST_F(DeviceUpdates, AFactorOfTheHostIsRefused) {
  const Twin p(Array::random(DType::f32, {5})), factor(Array::of(DType::f32, {}, {2}));
  EXPECT_THROW(sgd(p.on(gpu), {}, p.on(gpu), {}, &factor.on(cpu)), std::invalid_argument);
}

}  // namespace weft

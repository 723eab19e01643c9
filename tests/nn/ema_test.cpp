// SPDX-License-Identifier: Apache-2.0
#include "weft/ema.h"

#include <gtest/gtest.h>

#include "tests/nn/plain_steps.h"
#include "tests/support/scratch.h"
#include "weft/context.h"

namespace weft {
namespace {

TEST(Ema, AveragesInF32AndGivesValuesBack) {
  const auto p = named_values("p", {3, 5}, 0);
  p.parameter->set_value(p.parameter->value().detach().to(bf16));
  Ema ema({p}, 0.75);
  Values expected;
  for (int step = 0; step < 3; ++step) {
    const Values now = values_of(p);
    if (step == 0) expected = now;
    for (size_t i = 0; i < now.size(); ++i) expected[i] = 0.75 * expected[i] + 0.25 * now[i];
    ema.update();
    const NoGrad no_grad;
    scale_(p.parameter->value(), full({}, 2));
  }
  EXPECT_EQ(ema.averages()[0].dtype(), f32);
  expect_values(whole_values(ema.averages()[0]), expected, 1e-6);
  const Values own = values_of(p);
  {
    const Ema::Applied applied = ema.applied();
    expect_values(values_of(p), expected, 4e-3);
  }
  EXPECT_EQ(values_of(p), own);
  Ema::Applied applied = ema.applied();
  applied.end();
  applied.end();
  EXPECT_EQ(values_of(p), own);
}

TEST(Ema, NamesWhatDoesNotFit) {
  auto declared = std::make_shared<Parameter>(Shape{2}, f32, constant_values(0));
  Ema early({{{"p"}, declared}});
  EXPECT_EQ(error_of([&] { early.update(); }), "ema: parameter p has no memory, expected some");
  EXPECT_EQ(early.updates(), 0);
  on_mesh({{"a", 2}}, [](const DeviceMesh& mesh) {
    const auto p = named_values("p", {4}, 0, Sharding(mesh, {Shard(0)}));
    Ema ema({p});
    ema.update();
    p.parameter->set_value(zeros({4}, {.sharding = Sharding(mesh, {})}));
    EXPECT_EQ(error_of([&] { ema.update(); }),
              "ema: parameter p is laid out as mesh(a=2)[R], expected mesh(a=2)[S(0)], its layout "
              "at the first update");
  });
}

}  // namespace
}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/agreement.h"
#include "tests/support/scratch.h"

namespace weft {

TEST(Swiglu, EqualsPlainLoops) {
  Array gate = random_array({5, 7}, -6, 6), up = random_array({5, 7}, -2, 2, f32, 2);
  Array dy = random_array({5, 7}, -1, 1, f32, 3);
  Array y{{5, 7}, {}}, dgate{{5, 7}, {}}, dup{{5, 7}, {}};
  for (size_t i = 0; i < 35; ++i) {
    const double a = gate.values[i], s = 1 / (1 + std::exp(-a)), g = dy.values[i];
    y.values.push_back(a * s * up.values[i]);
    dup.values.push_back(g * a * s);
    dgate.values.push_back(g * up.values[i] * s * (1 + a * (1 - s)));
  }
  Tensor a = gate.on(), b = up.on();
  a.set_requires_grad();
  b.set_requires_grad();
  Tensor result = swiglu(a, b);
  expect_close(whole(result), y, 1e-6, "y");
  backward({result}, {dy.on()});
  expect_close(whole(a.grad()), dgate, 1e-6, "gate");
  expect_close(whole(b.grad()), dup, 1e-6, "up");
}

TEST(Swiglu, ComputesInItsDtype) {
  for (const auto& [dtype, bound] : {std::pair(bf16, 1e-2), std::pair(f64, 1e-12)}) {
    for (const Shape& shape : {Shape{3, 1000}, Shape{3, 5, 2}, Shape{0, 3}}) {
      const Array gate = random_array(shape, -9, 9, dtype),
                  up = random_array(shape, -2, 2, dtype, 2);
      Array y{shape, {}};
      const std::vector<double> a = whole(gate.on()).values, b = whole(up.on()).values;
      for (size_t i = 0; i < a.size(); ++i) y.values.push_back(a[i] * b[i] / (1 + std::exp(-a[i])));
      const Tensor result = swiglu(gate.on(), up.on());
      EXPECT_EQ(result.dtype(), dtype);
      expect_close(whole(result), y, bound, "y");
    }
  }
}

TEST(Swiglu, AgreesOnAnyLayout) {
  expect_agreement([](const Tensors& t) { return Tensors{swiglu(t[0], t[1])}; },
                   {random_array({5, 3}, -4, 4), random_array({5, 3}, -2, 2, f32, 2)},
                   {{{{"x", 4}}, {{Shard(1)}, {Shard(1)}}},
                    {{{"x", 3}}, {{Shard(0)}, {Replicate()}}},
                    {{{"x", 2}, {"y", 2}}, {{Shard(0), Shard(1)}, {Shard(1), Shard(0)}}}});
}

TEST(Swiglu, SaysWhatIsWrong) {
  EXPECT_EQ(error_of([] {
              swiglu(zeros({5, 7}), zeros({1, 7}));
            }),
            "swiglu: up is [1, 7], expected [5, 7], the shape of the gate");
}

}  // namespace weft

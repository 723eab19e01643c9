// SPDX-License-Identifier: Apache-2.0
#include "weft/derivatives.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/error.h"
#include "weft/extend/op.h"
#include "weft/extend/testing.h"
#include "weft/ops.h"

namespace weft {

static Tensor f64_numbers(const Shape& shape, int seed = 1) {
  return numbers(shape, seed, {}, f64);
}

TEST(Derivatives, AreThoseOfACubeToTheThirdOrder) {
  Tensor x = full({}, 2.0, {.dtype = f64});
  x.set_requires_grad();
  const Tensor y = mul(mul(x, x), x);
  const Tensor first = grad({y}, {x}, {.create_graph = true})[0];
  const Tensor second = grad({first}, {x}, {.create_graph = true})[0];
  const Tensor third = grad({second}, {x})[0];
  EXPECT_EQ(first.item(), 12);
  EXPECT_EQ(second.item(), 12);
  EXPECT_EQ(third.item(), 6);
  EXPECT_FALSE(x.grad());
}

TEST(Derivatives, GradComputesThoseOfResultsToo) {
  Tensor x = f64_numbers({3}), w = f64_numbers({3}, 2);
  x.set_requires_grad();
  w.set_requires_grad();
  const Tensor h = mul(x, w), y = sum(square(h));
  const Tensors found = grad({y}, {h, x}, {.retain_graph = true});
  for (size_t i = 0; i < 3; ++i) {
    const double a = x.to_vector<double>()[i], b = w.to_vector<double>()[i];
    EXPECT_DOUBLE_EQ(found[0].to_vector<double>()[i], 2 * a * b);
    EXPECT_DOUBLE_EQ(found[1].to_vector<double>()[i], 2 * a * b * b);
  }
  backward({y}, {}, {.inputs = {w}});
  EXPECT_TRUE(w.grad());
  EXPECT_FALSE(x.grad());
  EXPECT_EQ(error_of([&] { grad({y}, {x}); }),
            "sum: backward ran before and freed the saved tensors, expected one backward; "
            "retain_graph keeps them");
}

TEST(Derivatives, MistakesAreNamed) {
  Tensor x = f64_numbers({3}), other = f64_numbers({2});
  x.set_requires_grad();
  const Tensor y = sum(square(x));
  EXPECT_EQ(error_of([&] { grad({y}, {other}); }),
            "grad: input 0 [2] does not require a gradient, expected one that does");
  other.set_requires_grad();
  EXPECT_EQ(error_of([&] { grad({y}, {other}, {.retain_graph = true}); }),
            "grad: input 0 [2] is not used by the outputs, expected one that is; allow_unused "
            "returns none for it");
  EXPECT_FALSE(grad({y}, {other}, {.retain_graph = true, .allow_unused = true})[0]);
  EXPECT_EQ(error_of([&] { backward({y}, {}, {.inputs = {y}}); }),
            "backward: input 0 [] is the result of an op, expected a leaf; grad() returns "
            "gradients of results");
  const Tensor plain = f64_numbers({2});
  EXPECT_EQ(error_of([&] { register_hook(plain, {}); }),
            "register_hook: the tensor [2] requires no gradient, expected one that does");
  EXPECT_EQ(error_of([&] { retain_grad(plain); }),
            "retain_grad: the tensor [2] requires no gradient, expected one that does");
  EXPECT_EQ(error_of([&] { register_post_accumulate_grad_hook(y, {}); }),
            "register_post_accumulate_grad_hook: the tensor [] is the result of an op, expected a "
            "leaf that requires one");
  EXPECT_EQ(error_of([&] {
              detach_(reshape(x, {3, 1}));
            }),
            "detach_: the tensor [3, 1] is a view, expected one with separate memory; detach() "
            "returns a detached view");
  const auto identity = [](const Tensors& all) { return all; };
  EXPECT_EQ(error_of([&] { jvp(identity, {plain}, {}); }),
            "jvp: number of vectors is 0, expected 1");
  EXPECT_EQ(error_of([&] { jvp(identity, {plain}, {zeros({3})}); }),
            "jvp: vector 0 is [3], expected [2]");
  EXPECT_EQ(error_of([&] { hvp(identity, {plain}, {plain}); }),
            "hvp: number of outputs is 1, the first [2], expected 1 of one element");
  EXPECT_EQ(error_of([&] { jacobian(identity, {zeros({2}, {.dtype = i64})}); }),
            "jacobian: input 0 is i64, expected a floating tensor");
  EXPECT_EQ(error_of([&] { gradcheck(identity, {zeros({2})}); }),
            "gradcheck: input 0 is f32, expected f64");
}

TEST(Derivatives, StepFunctionsHaveTheGradientZero) {
  for (const auto& step : {floor, ceil, round, trunc, sign}) {
    Tensor x = f64_numbers({5});
    x.set_requires_grad();
    sum(step(x)).backward();
    EXPECT_EQ(x.grad().to_vector<double>(), std::vector<double>(5, 0));
  }
}

/// exp with a gradient that is differentiable again: it keeps its result, recorded.
struct Cubed {
  Tensor input;
  Tensors forward(const Tensors& inputs) {
    input = inputs[0];
    return {mul(square(input), input)};
  }
  Tensors backward(const Tensors& gradients) const {
    return {mul(gradients[0], mul(square(input), 3.0))};
  }
};

TEST(Derivatives, OfACustomFunctionAreThoseOfItsBackward) {
  const auto cubed = [](const Tensors& x) { return apply("cubed", std::make_shared<Cubed>(), x); };
  EXPECT_EQ(gradcheck(cubed, {f64_numbers({3})}), "");
  EXPECT_EQ(gradgradcheck(cubed, {f64_numbers({3})}), "");
}

TEST(Derivatives, ProductsAndMatricesAgree) {
  const auto f = [](const Tensors& x) { return Tensors{mul(sin(x[0]), x[1]), exp(x[1])}; };
  const Tensors at = {f64_numbers({2}), f64_numbers({2}, 2)};
  const auto rows = jacobian(f, at);
  EXPECT_EQ(rows[1][0].to_vector<double>(), std::vector<double>(4, 0));
  const std::vector<double> x = at[0].to_vector<double>(), y = at[1].to_vector<double>();
  EXPECT_NEAR(rows[0][0].to_vector<double>()[0], std::cos(x[0]) * y[0], 1e-12);
  const Tensors v = {ones({2}, {.dtype = f64}), zeros({2}, {.dtype = f64})};
  const Tensors along = jvp(f, at, v).products;
  EXPECT_NEAR(along[0].to_vector<double>()[1], std::cos(x[1]) * y[1], 1e-12);
  EXPECT_EQ(along[1].to_vector<double>()[1], 0);
  const auto total = [&](const Tensors& given) { return Tensors{sum(f(given)[0])}; };
  const auto second = hessian(total, at);
  const Tensors times = hvp(total, at, v).products;
  EXPECT_NEAR(second[0][0].to_vector<double>()[0], -std::sin(x[0]) * y[0], 1e-12);
  EXPECT_NEAR(times[0].to_vector<double>()[0], -std::sin(x[0]) * y[0], 1e-12);
  EXPECT_NEAR(times[1].to_vector<double>()[1], std::cos(x[1]), 1e-12);
}

TEST(Derivatives, LeavesDoNotShareTheMemoryOfRecordedGradients) {
  Tensor x = f64_numbers({3}), y = f64_numbers({3}, 2);
  x.set_requires_grad();
  y.set_requires_grad();
  backward({sum(square(add(x, y)))}, {}, {.create_graph = true});
  const std::vector<double> before = y.grad().to_vector<double>();
  {
    const NoGrad no_grad;
    mul_(x.grad(), 2.0);
  }
  EXPECT_EQ(y.grad().to_vector<double>(), before);
  x.set_grad({});
  y.set_grad({});
}

TEST(Derivatives, OfFloorDivideAreZeroAndOfNextafterAreRefused) {
  Tensor x = f64_numbers({3});
  x.set_requires_grad();
  const Tensor one = ones({3}, {.dtype = f64});
  EXPECT_EQ(grad({sum(floor_divide(x, one))}, {x})[0].to_vector<double>(),
            std::vector<double>(3, 0));
  EXPECT_EQ(error_of([&] { sum(nextafter(x, one)).backward(); }),
            "nextafter: it has no backward, expected one where a gradient is wanted; "
            "differentiable = false stops gradients, and a definition states them");
}

TEST(Derivatives, OfGradientsWithoutADefinitionAreRefusedByName) {
  Tensor x = numbers({4, 32}, 1), w = numbers({8, 32}, 2);
  x.set_requires_grad();
  EXPECT_EQ(error_of([&] { grad({sum(float8_linear(x, w))}, {x}, {.create_graph = true}); }),
            "float8_linear: its gradient has no derivative, expected a backward without "
            "create_graph; compute the layer in a wider dtype");
}

TEST(Derivatives, ARetainedGradientCanBeCleared) {
  Tensor x = f64_numbers({3});
  x.set_requires_grad();
  const Tensor h = square(x);
  retain_grad(h);
  backward({sum(square(h))}, {}, {.create_graph = true});
  EXPECT_TRUE(h.grad().requires_grad());
  h.set_grad({});
  x.set_grad({});
  EXPECT_FALSE(h.grad());
}

TEST(Derivatives, OfShardedTensorsAreThoseOfWholeOnes) {
  const auto second_of = [](const Tensor& given_x, const Tensor& given_w) {
    Tensor x = given_x.detach(), w = given_w.detach();
    x.set_requires_grad();
    w.set_requires_grad();
    const Tensor y = sum(square(softmax(rms_norm(matmul(x, w), {}, 1e-5))));
    const Tensor dx = grad({y}, {x}, {.create_graph = true})[0];
    const Tensors all = grad({sum(square(dx))}, {x, w});
    return std::pair(all[0].full_tensor().to_vector<double>(),
                     all[1].full_tensor().to_vector<double>());
  };
  const Tensor x = f64_numbers({5, 4}), w = f64_numbers({4, 7}, 2);
  const auto [of_x, of_w] = second_of(x, w);
  for (const std::vector<MeshAxis>& axes :
       {std::vector<MeshAxis>{{"a", 3}}, std::vector<MeshAxis>{{"a", 2}, {"b", 2}}}) {
    on_mesh(axes, [&](const DeviceMesh& mesh) {
      for (const Placements& placements : {Placements{Shard(0)}, Placements{Shard(1)}}) {
        const auto [by_x, by_w] = second_of(distribute(f64_numbers({5, 4}), mesh, placements),
                                            distribute(f64_numbers({4, 7}, 2), mesh, {Shard(1)}));
        for (size_t i = 0; i < of_x.size(); ++i) EXPECT_NEAR(by_x[i], of_x[i], 1e-10);
        for (size_t i = 0; i < of_w.size(); ++i) EXPECT_NEAR(by_w[i], of_w[i], 1e-10);
      }
    });
  }
}

}  // namespace weft

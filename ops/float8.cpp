// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/float8.h"

#include "ops/promotion.h"
#include "src/kernels/matmul/float8.h"
#include "weft/context.h"
#include "weft/ops/reductions.h"

namespace weft {

/// The greatest magnitude in the whole tensor, as an f32 scalar on each rank.
static Tensor greatest_magnitude(const Tensor& a) {
  const NoGrad no_grad;
  const Tensor values = a.detach();
  const TensorOptions options = options_next_to(a, DType::f32);
  if (a.numel() == 0) return zeros({}, options);
  const Tensor greatest = as_dtype(max(abs(values)), DType::f32);
  return a.is_sharded() ? redistributed(greatest, options.sharding) : greatest;
}

/// Makes an op that is not among all_ops(), whose gradients are checked by differences.
static Op product_op(const char* name, RuleLiteral rule, LinearProduct product,
                     void (*backward)(const Grad&) = nullptr) {
  return Op({.name = name,
             .rule = rule,
             .takes = {anything()},
             .forward =
                 [product](const Call& c) {
                   float8_product(product, c.out(), c.in(0), c.in(1), c.in(2), c.in(3),
                                  c.accumulate());
                 },
             .backward = backward,
             .accumulates = {0},
             .products = [](const Attributes&) { return 1.0; },
             .differentiable = backward != nullptr});
}

static const Op input_gradient_op =
    product_op("float8_input_gradient", "... n, n k, ., . -> ... k", LinearProduct::input_gradient);
static const Op weight_gradient_op = product_op(
    "float8_weight_gradient", "... n, ... k, ., . -> n k", LinearProduct::weight_gradient);

static void give_float8_gradients(const Grad& g) {
  const Tensor greatest = greatest_magnitude(g.grad());
  if (g.wants(1)) g.give(1, weight_gradient_op, {g.grad(), g.in(0), greatest, g.in(2)});
  if (g.wants(0)) g.give(0, input_gradient_op, {g.grad(), g.in(1), greatest, g.in(3)});
}

static const Op float8_linear_op = product_op("float8_linear", "... k, n k, ., . -> ... n",
                                              LinearProduct::forward, give_float8_gradients);

Tensor float8_linear(const Tensor& x, const Tensor& weight) {
  if (!x || !weight) fail("float8_linear: no tensor is given, expected one");
  const DType dtype = promote(x.dtype(), weight.dtype());
  if (!is_floating(dtype)) fail("float8_linear: dtype is ", dtype, ", expected a floating one");
  const Tensor from = as_dtype(x, dtype), by = as_dtype(weight, dtype);
  return float8_linear_op({from, by, greatest_magnitude(from), greatest_magnitude(by)});
}

}  // namespace weft

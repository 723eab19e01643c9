// SPDX-License-Identifier: Apache-2.0
#include "ops/composed/matrices.h"
#include "ops/promotion.h"
#include "weft/extend/tape.h"
#include "weft/linalg.h"
#include "weft/ops.h"

namespace weft::linalg {

/// 1, or -1 for an odd number of exchanges.
static Tensor parity_of(const LuFactor& factors) {
  const Tensor own = numbers_next_to(factors.pivots, 1, factors.pivots.size(-1) + 1);
  const Tensor is_odd = not_equal(factors.pivots, cast(own, i32));
  return prod(sub(1, mul(cast(is_odd, factors.lu.dtype()), 2)), {-1});
}

/// a^-T times a number for each matrix, by factors of a.
static Tensor scaled_inverse(const Tensor& a, const LuFactor& factors, const Tensor& by) {
  const Tensor scaled = mul(identity(a, a.size(-1)), unsqueeze(unsqueeze(by, -1), -1));
  return solve_by_lu(a, factors.lu, factors.pivots, scaled, true);
}

Tensor det(const Tensor& given) {
  const Tensor a = square("det", given);
  const LuFactor factors = constant_factors(a);
  const Tensor parity = parity_of(factors), pivots = diagonal(factors.lu);
  const Tensor value = mul(parity, prod(pivots, {-1}));
  if (!needs_gradient(a) || a.numel() == 0) return value;
  return record("det", {a}, {value}, [=](const Tensors& gradients) -> Tensors {
    // A zero on the diagonal becomes so small a number that the gradient, det a^-T, is right.
    LuFactor near = factors;
    const double eps = a.dtype() == DType::f64 ? 0x1p-52 : 0x1p-23;
    const Tensor is_zero = equal(pivots, 0);
    const Tensor least = mul(max(abs(pivots), {-1}, true), eps);
    const Tensor moved = where(is_zero, add(least, equal(least, 0)), pivots);
    near.lu = add(near.lu, diag_embed(sub(moved, pivots)));
    const Tensor is_singular_one = any(is_zero, {-1});
    const Tensor used = where(is_singular_one, mul(parity, prod(moved, {-1})), as_output(0, value));
    return {scaled_inverse(as_input(0, a), near, mul(gradients[0], used))};
  })[0];
}

SignAndLogarithm slogdet(const Tensor& given) {
  const Tensor a = square("slogdet", given);
  const LuFactor factors = constant_factors(a);
  const Tensor pivots = diagonal(factors.lu);
  const Tensor sign_of = mul(parity_of(factors), prod(sign(pivots), {-1}));
  Tensor logarithm = sum(log(abs(pivots)), {-1});
  if (needs_gradient(a)) {
    logarithm = record("slogdet", {a}, {logarithm}, [=](const Tensors& gradients) -> Tensors {
      return {scaled_inverse(as_input(0, a), factors, gradients[0])};
    })[0];
  }
  return {sign_of, logarithm};
}

}  // namespace weft::linalg

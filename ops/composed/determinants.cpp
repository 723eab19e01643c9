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

/// a^-H times a number for each matrix, by factors of a.
static Tensor scaled_inverse(const Tensor& a, const LuFactor& factors, const Tensor& by) {
  const Tensor scaled = mul(identity(a, a.size(-1)), unsqueeze(unsqueeze(by, -1), -1));
  return solve_by_lu(a, factors.lu, factors.pivots, scaled, true);
}

/// The gradient of det for singular matrices, conj(det(u) det(vh)) u diag(c) vh with the products c
/// of the other singular values; for the others, whose parts `is_singular` leaves out, any number.
static Tensor cofactors(const Tensor& a, const Tensor& is_singular) {
  const int64_t n = a.size(-1);
  const Tensor apart = diag_embed(cast(numbers_next_to(a, 1, n + 1), a.dtype()));
  const Svd parts = svd(where(unsqueeze(unsqueeze(is_singular, -1), -1), a, apart), false);
  const Tensor one = identity(parts.s, n);
  const Tensor others = prod(where(not_equal(one, 0), one, unsqueeze(parts.s, -2)), {-1});
  const Tensor orientation = det(matmul(parts.u, parts.vh).detach());
  const Tensor scale = mul(others, unsqueeze(conj(sgn(orientation)), -1));
  return matmul(mul(parts.u, unsqueeze(scale, -2)), parts.vh);
}

Tensor det(const Tensor& given) {
  const Tensor a = square("det", given);
  const LuFactor factors = constant_factors(a);
  const Tensor parity = parity_of(factors), pivots = diagonal(factors.lu);
  const Tensor value = mul(parity, prod(pivots, {-1}));
  if (!needs_gradient(a) || a.numel() == 0) return value;
  return record("det", {a}, {value}, [=](const Tensors& gradients) -> Tensors {
    const Tensor input = as_input(0, a), is_singular = any(equal(pivots, 0), {-1});
    const auto regular = [&](const LuFactor& by) {
      return scaled_inverse(input, by, mul(gradients[0], conj(as_output(0, value))));
    };
    const Tensor is_any = any(is_singular);
    if ((is_any.is_sharded() ? is_any.full_tensor() : is_any).item() == 0)
      return {regular(factors)};
    const Tensor which = unsqueeze(unsqueeze(is_singular, -1), -1);
    LuFactor near = factors;
    near.lu = where(which, identity(a, a.size(-1)), factors.lu);
    const Tensor by = unsqueeze(unsqueeze(gradients[0], -1), -1);
    return {where(which, mul(cofactors(input, is_singular), by), regular(near))};
  })[0];
}

SignAndLogarithm slogdet(const Tensor& given) {
  const Tensor a = square("slogdet", given);
  const LuFactor factors = constant_factors(a);
  const Tensor pivots = diagonal(factors.lu);
  Tensor sign_of = mul(parity_of(factors), prod(sgn(pivots), {-1}));
  Tensor logarithm = sum(log(abs(pivots)), {-1});
  if (!needs_gradient(a)) return {sign_of, logarithm};
  if (!is_complex(a.dtype())) {
    logarithm = record("slogdet", {a}, {logarithm}, [=](const Tensors& gradients) -> Tensors {
      return {scaled_inverse(as_input(0, a), factors, gradients[0])};
    })[0];
    return {sign_of, logarithm};
  }
  // The logarithm of the determinant is `logarithm` + i times the angle of the sign.
  const auto backward = [=](const Tensors& gradients) -> Tensors {
    Tensor by;
    if (gradients[1]) by = as_dtype(gradients[1], a.dtype());
    if (gradients[0]) {
      const Tensor angle = imag(mul(gradients[0], conj(as_output(0, sign_of))));
      const Tensor turned = complex(zeros_like(angle), angle);
      by = by ? add(by, turned) : turned;
    }
    return {scaled_inverse(as_input(0, a), factors, by)};
  };
  const Tensors results = record("slogdet", {a}, {sign_of, logarithm}, backward);
  return {results[0], results[1]};
}

}  // namespace weft::linalg

// SPDX-License-Identifier: Apache-2.0
#include <numbers>

#include "ops/complex.h"
#include "ops/engine/tensor_body.h"
#include "ops/functions.h"
#include "ops/promotion.h"
#include "weft/ops.h"

namespace weft {

static Tensor floating(const Tensor& a) { return is_floating(a.dtype()) ? a : cast(a, DType::f32); }

Tensor sinc(const Tensor& a) {
  const Tensor is_zero = equal(a, 0);
  const Tensor x = mul(where(is_zero, next_to(floating(a), 1.0), floating(a)), std::numbers::pi);
  return where(is_zero, next_to(x, 1.0), div(sin(x), x));
}

Tensor deg2rad(const Tensor& a) { return mul(floating(a), std::numbers::pi / 180); }
Tensor rad2deg(const Tensor& a) { return mul(floating(a), 180 / std::numbers::pi); }

Tensor angle(const Tensor& a) {
  if (is_complex(a)) return complex_angle(a);
  const Tensor x = floating(a);
  return where(less(x, 0), next_to(x, std::numbers::pi), where(isnan(x), x, next_to(x, 0.0)));
}

Tensor isposinf(const Tensor& a) { return logical_and(isinf(a), greater(a, 0)); }
Tensor isneginf(const Tensor& a) { return logical_and(isinf(a), less(a, 0)); }

Tensor isclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  check_tensor("isclose", a, b);
  const DType both = promote(a.dtype(), b.dtype());
  Tensor apart, size;
  if (is_floating(both)) {
    const DType dtype = a.dtype() == b.dtype() ? both : promote(both, DType::f32);
    size = as_dtype(b, dtype);
    apart = abs(sub(as_dtype(a, dtype), size));
  } else {  // a difference of 64 bits wraps, and is right as u64
    const Tensor x = as_dtype(a, total_dtype(both)), y = as_dtype(b, total_dtype(both));
    size = cast(y, DType::f64);
    apart = cast(cast(sub(maximum(x, y), minimum(x, y)), DType::u64), DType::f64);
  }
  const Tensor near = less_equal(apart, add(mul(abs(size), rtol), atol));
  Tensor close = logical_or(equal(a, b), logical_and(near, logical_and(isfinite(a), isfinite(b))));
  if (equal_nan) close = logical_or(close, logical_and(isnan(a), isnan(b)));
  return close;
}

bool allclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  return all(isclose(a, b, rtol, atol, equal_nan)).full_tensor().item() != 0;
}

}  // namespace weft

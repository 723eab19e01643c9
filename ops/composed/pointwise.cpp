// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/pointwise.h"

#include <numbers>

#include "weft/error.h"
#include "weft/ops.h"

namespace weft {

static Tensor floating(const Tensor& a) { return is_floating(a.dtype()) ? a : cast(a, DType::f32); }

Tensor gelu(const Tensor& a, std::string_view approximate) {
  if (approximate == "none") return gelu(a);
  if (approximate != "tanh") {
    fail("gelu: approximate is ", in_quotes(approximate), ", expected none or tanh");
  }
  return gelu_tanh(a);
}

Tensor rsub(const Tensor& a, const Operand& b, Number alpha) {
  return sub(next_to(a, b), alpha.value == 1 ? a : mul(a, alpha));
}

Tensor frac(const Tensor& a) { return sub(a, trunc(a)); }

Tensor fmax(const Tensor& a, const Tensor& b) {
  return where(isnan(a), b, where(isnan(b), a, maximum(a, b)));
}
Tensor fmin(const Tensor& a, const Tensor& b) {
  return where(isnan(a), b, where(isnan(b), a, minimum(a, b)));
}

Tensor heaviside(const Tensor& a, const Tensor& b) {
  const Tensor step = where(isnan(a), a, cast(greater(a, 0), a.dtype()));
  return where(equal(a, 0), b, step);
}

Tensor ldexp(const Tensor& a, const Tensor& b) { return mul(a, pow(2.0, floating(b))); }

Tensor float_power(const Tensor& a, const Tensor& b) {
  return pow(cast(a, DType::f64), cast(b, DType::f64));
}

Tensor exp2(const Tensor& a) { return pow(2.0, floating(a)); }

Tensor xlogy(const Tensor& a, const Tensor& b) {
  const Tensor is_zero = logical_and(equal(a, 0), logical_not(isnan(b)));
  // The gradient of log at 0 would be infinite where it does not count.
  const Tensor safe = where(is_zero, next_to(floating(b), 1.0), floating(b));
  return where(is_zero, next_to(safe, 0.0), mul(a, log(safe)));
}

Tensor logit(const Tensor& a, std::optional<double> eps) {
  Tensor x = floating(a);
  // The lower bound counts where they cross, as in PyTorch.
  if (eps) x = masked_fill(clip(x, {}, 1 - *eps), less(x, *eps), *eps);
  return sub(log(x), log1p(neg(x)));
}

Tensor logaddexp2(const Tensor& a, const Tensor& b) {
  const double ln2 = std::numbers::ln2;
  return div(logaddexp(mul(floating(a), ln2), mul(floating(b), ln2)), ln2);
}

Tensor sinc(const Tensor& a) {
  const Tensor is_zero = equal(a, 0);
  const Tensor x = mul(where(is_zero, next_to(floating(a), 1.0), floating(a)), std::numbers::pi);
  return where(is_zero, next_to(x, 1.0), div(sin(x), x));
}

Tensor deg2rad(const Tensor& a) { return mul(floating(a), std::numbers::pi / 180); }
Tensor rad2deg(const Tensor& a) { return mul(floating(a), 180 / std::numbers::pi); }

Tensor angle(const Tensor& a) {
  const Tensor x = floating(a);
  return where(less(x, 0), next_to(x, std::numbers::pi), where(isnan(x), x, next_to(x, 0.0)));
}

Tensor isposinf(const Tensor& a) { return logical_and(isinf(a), greater(a, 0)); }
Tensor isneginf(const Tensor& a) { return logical_and(isinf(a), less(a, 0)); }

Tensor isclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  const Tensor near =
      less_equal(abs(sub(floating(a), floating(b))), add(mul(abs(floating(b)), rtol), atol));
  Tensor close = logical_or(equal(a, b), logical_and(near, logical_and(isfinite(a), isfinite(b))));
  if (equal_nan) close = logical_or(close, logical_and(isnan(a), isnan(b)));
  return close;
}

bool allclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  return all(isclose(a, b, rtol, atol, equal_nan)).full_tensor().item() != 0;
}

}  // namespace weft

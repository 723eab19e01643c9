// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/special.h"

#include <cmath>
#include <numbers>

#include "ops/dims.h"
#include "ops/functions.h"
#include "ops/promotion.h"
#include "src/kernels/math/special.h"
#include "src/kernels/math/special_floats.h"
#include "weft/ops/logic.h"
#include "weft/ops/powers.h"
#include "weft/ops/rounding.h"

namespace weft {

namespace {

WEFT_FN float erfc_of(float a) { return erfc_float(a); }
WEFT_FN double erfc_of(double a) { return erfc_wide(a); }
WEFT_FN float erfinv_of(float a) { return erfinv_float(a); }
WEFT_FN double erfinv_of(double a) { return erfinv_wide(a); }
WEFT_FN float lgamma_of(float a) { return lgamma_float(a); }
WEFT_FN double lgamma_of(double a) { return lgamma_wide(a); }
WEFT_FUNCTOR(Erfc, erfc_of)
WEFT_FUNCTOR(Erfinv, erfinv_of)
WEFT_FUNCTOR(Lgamma, lgamma_of)
struct Polygamma {
  int64_t n;
  template <class T> WEFT_FN T operator()(T a) const {
    return static_cast<T>(polygamma_wide(n, static_cast<double>(a)));
  }
};
struct Igamma {
  int64_t upper;
  template <class T> WEFT_FN T operator()(T a, T x) const {
    return static_cast<T>(igamma_wide(static_cast<double>(a), static_cast<double>(x), upper));
  }
};
/// The derivative in `a` by central differences, to 8 digits: it has no closed form.
struct IgammaSlope {
  int64_t upper;
  template <class T> WEFT_FN T operator()(T a, T x) const {
    const auto at = static_cast<double>(a), to = static_cast<double>(x);
    const double step = at < 2e-4 ? at / 2 : 1e-4;
    const double rise = igamma_wide(at + step, to, upper) - igamma_wide(at - step, to, upper);
    return static_cast<T>(rise / (2 * step));
  }
};
struct BesselI {
  int64_t order;
  template <class T> WEFT_FN T operator()(T a) const {
    return static_cast<T>(bessel_i_wide(static_cast<int>(order), static_cast<double>(a)));
  }
};

}  // namespace

/// 2 / sqrt(pi) exp(-a^2), the derivative of erf.
static Tensor erf_derivative(const Tensor& a) {
  return mul(exp(neg(square(a))), 2 * std::numbers::inv_sqrtpi);
}

static const Op erfc_op =
    floating_function<Erfc>({.name = "erfc", .by_operand = [](auto& dy, auto& a) {
                               return neg(mul(dy, erf_derivative(a)));
                             }});
static const Op erfinv_op = floating_function<Erfinv>(
    {.name = "erfinv",
     .by_result = [](auto& dy, auto& y) { return div(dy, erf_derivative(y)); },
     .low = -0.9,
     .high = 0.9});
static const Op lgamma_op =
    floating_function<Lgamma>({.name = "lgamma",
                               .by_operand = [](auto& dy, auto& a) { return mul(dy, digamma(a)); },
                               .low = 0.5,
                               .high = 9});

/// structure: n.
static const Op polygamma_op = floating_elementwise<Polygamma, 1>({
    .name = "polygamma",
    .structure = {"n",
                  [](const Dims& s, std::span<const Shape>) { return s.ndim() == 1 && s[0] >= 0; }},
    .backward =
        [](const Grad& g) { g.give(0, mul(g.grad(), polygamma(g.attribute(0) + 1, g.in(0)))); },
    .saves_in = std::vector<int>{0},
    .samples = {{.shapes = {{5, 7}}, .attributes = {.structure = {0}}, .low = 0.5, .high = 9},
                {.shapes = {{5, 3}}, .attributes = {.structure = {2}}, .low = 1.5, .high = 9}},
});

/// structure: whether upper.
static const Op igamma_slope_op = floating_elementwise<IgammaSlope, 2>({
    .name = "igamma_slope",
    .structure = one_flag("upper"),
    .differentiable = false,
    .samples =
        {{.shapes = {{5, 7}, {5, 7}}, .attributes = {.structure = {0}}, .low = 0.5, .high = 5}},
});

/// structure: whether upper. The derivative in x is x^(a - 1) exp(-x) / gamma(a).
static const Op igamma_op = floating_elementwise<Igamma, 2>({
    .name = "igamma",
    .structure = one_flag("upper"),
    .backward =
        [](const Grad& g) {
          const Tensor &a = g.in(0), x = g.in(1);
          if (g.wants(0)) g.give(0, mul(g.grad(), igamma_slope_op({a, x}, g.attributes())));
          const Tensor density = exp(sub(sub(mul(sub(a, 1), log(x)), x), lgamma(a)));
          g.give(1, mul(g.attribute(0) ? neg(g.grad()) : g.grad(), density));
        },
    .saves_in = std::vector<int>{0, 1},
    .samples =
        {{.shapes = {{5, 7}, {5, 7}}, .attributes = {.structure = {0}}, .low = 0.5, .high = 5},
         {.shapes = {{7}, {5, 1}}, .attributes = {.structure = {1}}, .low = 0.5, .high = 5}},
});

/// structure: the order, 0 or 1. The derivative of I0 is I1; of I1, I0 - I1 / a, 1/2 at 0.
static const Op bessel_i_op = floating_elementwise<BesselI, 1>({
    .name = "bessel_i",
    .structure = one_flag("order"),
    .backward =
        [](const Grad& g) {
          const Tensor& a = g.in(0);
          if (g.attribute(0) == 0) return g.give(0, mul(g.grad(), i1(a)));
          const Tensor is_zero = equal(a, 0);
          const Tensor safe = masked_fill(a, is_zero, 1);
          const Tensor slope = sub(i0(a), div(i1(a), safe));
          g.give(0, mul(g.grad(), masked_fill(slope, is_zero, 0.5)));
        },
    .saves_in = std::vector<int>{0},
    .samples = {{.shapes = {{5, 7}}, .attributes = {.structure = {0}}},
                {.shapes = {{5, 3}}, .attributes = {.structure = {1}}, .low = 0.5}},
});

Tensor erfc(const Tensor& a) { return erfc_op({as_floating("erfc", a)}); }
Tensor erfinv(const Tensor& a) { return erfinv_op({as_floating("erfinv", a)}); }
Tensor lgamma(const Tensor& a) { return lgamma_op({as_floating("lgamma", a)}); }
Tensor digamma(const Tensor& a) { return polygamma(0, a); }
Tensor i0(const Tensor& a) { return bessel_i_op({as_floating("i0", a)}, {.structure = {0}}); }
Tensor i1(const Tensor& a) { return bessel_i_op({as_floating("i1", a)}, {.structure = {1}}); }

Tensor polygamma(int64_t n, const Tensor& a) {
  constexpr int64_t kMost = 100;
  if (n < 0 || n > kMost) fail("polygamma: n is ", n, ", expected 0 to ", kMost);
  return polygamma_op({as_floating("polygamma", a)}, {.structure = {n}});
}

Tensor mvlgamma(const Tensor& a, int64_t p) {
  constexpr int64_t kMost = 1000;
  if (p < 1 || p > kMost) fail("mvlgamma: p is ", p, ", expected 1 to ", kMost);
  const Tensor x = as_floating("mvlgamma", a);
  const auto dims = static_cast<double>(p);
  Tensor made = add(lgamma(x), dims * (dims - 1) / 4 * std::log(std::numbers::pi));
  for (int64_t i = 1; i < p; ++i) made = add(made, lgamma(sub(x, static_cast<double>(i) / 2)));
  return made;
}

static Tensor incomplete_gamma(const char* what, const Tensor& a, const Tensor& x, bool upper) {
  const DType both = promote(as_floating(what, a).dtype(), as_floating(what, x).dtype());
  return igamma_op({as_dtype(a, both), as_dtype(x, both)}, {.structure = {upper ? 1 : 0}});
}
Tensor igamma(const Tensor& a, const Tensor& x) { return incomplete_gamma("igamma", a, x, false); }
Tensor igammac(const Tensor& a, const Tensor& x) { return incomplete_gamma("igammac", a, x, true); }

FractionAndExponent frexp(const Tensor& a) {
  const Tensor x = as_floating("frexp", a);
  const Tensor size = abs(x.detach());
  const Tensor plain = logical_and(isfinite(size), greater(size, 0));
  const Tensor wide = cast(masked_fill(size, logical_not(plain), 1), DType::f64);
  Tensor exponent = add(floor(log2(wide)), 1);
  // log2 rounds next to powers of two.
  const Tensor scaled = mul(wide, pow(2.0, neg(exponent)));
  exponent = sub(add(exponent, cast(greater_equal(scaled, 1), DType::f64)),
                 cast(less(scaled, 0.5), DType::f64));
  exponent = masked_fill(exponent, logical_not(plain), 0);
  // Two factors: the power of a denormal's exponent may be infinite.
  const Tensor half = floor(mul(exponent, 0.5));
  const Tensor most = mul(cast(x, DType::f64), pow(2.0, neg(half)));
  return {cast(mul(most, pow(2.0, sub(half, exponent))), x.dtype()), cast(exponent, DType::i32)};
}

}  // namespace weft

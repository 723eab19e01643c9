// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <concepts>
#include <limits>
#include <numbers>

#include "ops/complex.h"
#include "ops/dims.h"
#include "ops/functions.h"
#include "ops/promotion.h"
#include "src/kernels/math/bessel.h"
#include "src/kernels/math/logarithms.h"
#include "src/kernels/math/special.h"
#include "weft/ops.h"

namespace weft {

// Powers and logarithms, and special functions.

namespace {

/// Squares, modulo 2^64. A negative exponent truncates the quotient to an integer (0 for 0).
struct IntegerPower {
  WEFT_FN int64_t operator()(int64_t a, int64_t b) const {
    if (b < 0) return a == 1 ? 1 : a != -1 ? 0 : b % 2 ? -1 : 1;
    return static_cast<int64_t>((*this)(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
  }
  WEFT_FN uint64_t operator()(uint64_t base, uint64_t b) const {
    uint64_t power = 1;
    for (; b > 0; b /= 2, base *= base) {
      if (b % 2) power *= base;
    }
    return power;
  }
};
struct Power : DependsOnSign {
  template <class T> WEFT_FN T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      return IntegerPower{}(a, b);
    } else {
      return pow(a, b);
    }
  }
};
struct PowerNumber {
  double exponent;
  template <class T> WEFT_FN T operator()(T a) const {
    return Power{}(a, static_cast<T>(exponent));
  }
};
struct NumberPower {
  static constexpr bool kDependsOnSign = true;
  double base;
  template <class T> WEFT_FN T operator()(T a) const { return Power{}(number_as<T>(base), a); }
};
struct SecondPower : Wraps {
  template <class T> WEFT_FN T operator()(T a) const { return a * a; }
};
/// The power 0.5, which differs from the square root for -0 and -infinity.
struct HalfPower {
  template <class T> WEFT_FN T operator()(T a) const {
    constexpr T kInfinity = std::numeric_limits<T>::infinity();
    return a == -kInfinity ? kInfinity : sqrt(a + T(0));
  }
};

WEFT_FUNCTOR(Expm1, expm1)
WEFT_FUNCTOR(Log1p, log1p)
WEFT_FUNCTOR(Log2, log2)
WEFT_FUNCTOR(Log10, log10)
/// Equal infinities count as difference 0. Computes log1p(e) inline for 0 <= e <= 1: with the
/// special cases of log1p the loop does not vectorise.
struct LogAddExp {
  template <class T> WEFT_FN T operator()(T a, T b) const {
    const T apart = a == b ? T(0) : abs(a - b);
    const T e = exp(-apart), sum = T(1) + e;
    return (a > b ? a : b) + (log(sum) + (e - (sum - T(1))) / sum);
  }
};

/// a log(b), but 0 where a is 0 and b is not NaN.
struct TimesLog {
  template <class T> WEFT_FN T operator()(T a, T b) const {
    return a == T(0) && b == b ? T(0) : a * log(b);
  }
};
WEFT_FUNCTOR(Erf, erf)
WEFT_FUNCTOR(Erfc, erfc_of)
WEFT_FUNCTOR(Erfinv, erfinv_of)
WEFT_FUNCTOR(Lgamma, lgamma_of)
struct Polygamma {
  int64_t n;
  WEFT_FN double operator()(double a) const { return polygamma_wide(n, a); }
  WEFT_FN float operator()(float a) const {
    int rare = 0;
    const float value = plain(a, rare);
    return rare ? static_cast<float>(polygamma_wide(n, static_cast<double>(a))) : value;
  }
  template <std::same_as<float> T> WEFT_FN T plain(T a, int& rare) const {
    rare |= n != 0;
    return plain_digamma(a, rare);
  }
};
struct Igamma {
  int64_t upper;
  template <class T> WEFT_FN T operator()(T a, T x) const {
    return static_cast<T>(igamma_wide(static_cast<double>(a), static_cast<double>(x), upper));
  }
};
struct BesselI {
  int64_t order;
  WEFT_FN float operator()(float a) const { return bessel_i_of(order, a); }
  WEFT_FN double operator()(double a) const { return bessel_i_wide(static_cast<int>(order), a); }
};

}  // namespace

/// f16 and bf16 as f32, so that a composition rounds to them only once.
static Tensor in_f32(const Tensor& a) {
  return size_of(a.dtype()) == 2 ? as_dtype(a, DType::f32) : a;
}

/// b a^(b-1); 0 for the exponent 0.
static Tensor base_gradient(const Grad& g) {
  const Tensor a = in_f32(g.in(0)), b = in_f32(g.in(1));
  const Tensor all = mul(mul(in_f32(g.grad()), b), pow(a, sub(b, 1)));
  return as_dtype(masked_fill(all, equal(b, 0), 0), g.in_dtype(0));
}
/// a^b log(a); 0 for the base 0 where the power is 0 or 1.
static Tensor exponent_gradient(const Grad& g) {
  const Tensor a = in_f32(g.in(0)), is_flat = logical_and(equal(a, 0), greater_equal(g.in(1), 0));
  const Tensor all = mul(mul(in_f32(g.grad()), in_f32(g.out())), log(a));
  return as_dtype(masked_fill(all, is_flat, 0), g.in_dtype(1));
}

static const Op pow_op = elementwise<Power, 2>({
    .name = "pow",
    .backward = give_each({base_gradient, exponent_gradient}),
    .saves_out = {0},
    .samples = {{.shapes = {{5, 7}, {5, 7}}, .low = 0.5},
                {.shapes = {{7}, {5, 1}}, .low = 0.5},
                {.shapes = {{5, 7}, {7}}, .dtypes = {i32, i32}, .low = -3, .high = 6}},
});

static void power_of_number(const Call& c) {
  const double exponent = c.value(0);
  if (exponent == 2) return map(SecondPower{}, c.out(), c.in(0));
  if (exponent == 0.5) return map_floating(HalfPower{}, c.out(), c.in(0));
  map(PowerNumber{exponent}, c.out(), c.in(0));
}

static const Op pow_number_op = register_op({
    .name = "pow_number",
    .rule = "... -> ...",
    .forward = power_of_number,
    .backward =
        [](const Grad& g) {
          const double exponent = g.value(0);
          if (exponent == 0) return g.give(0, zeros_like(g.in(0)));
          g.give(0, mul(mul(g.grad(), pow(g.in(0), exponent - 1)), exponent));
        },
    .samples = {{.shapes = {{5, 7}}, .attributes = {.values = {2}}},
                {.shapes = {{5, 7}}, .attributes = {.values = {0.5}}, .low = 0.5},
                {.shapes = {{5, 7}}, .attributes = {.values = {-1.5}}, .low = 0.5},
                {.shapes = {{5, 7}}, .attributes = {.values = {0}}},
                {.shapes = {{5, 7}}, .attributes = {.values = {3}}, .dtypes = {i64}}},
});

static const Op number_pow_op = elementwise<NumberPower, 1>({
    .name = "number_pow",
    .backward =
        [](const Grad& g) {
          const double base = g.value(0);
          g.give(0, mul(mul(g.grad(), g.out()), base == 0 ? 0 : std::log(base)));
        },
    .saves_in = std::vector<int>{},
    .saves_out = {0},
    .samples = {{.shapes = {{5, 7}}, .attributes = {.values = {2.5}}},
                {.shapes = {{5, 7}}, .attributes = {.values = {-3}}, .dtypes = {i64}}},
});

static const Op expm1_op =
    function<Expm1>("expm1", {.by_result = [](auto& dy, auto& y) { return mul(dy, add(y, 1)); }});
static const Op log1p_op = function<Log1p>(
    "log1p",
    {.by_operand = [](auto& dy, auto& a) { return div(dy, add(a, 1)); }, .range = {-0.5, 2}});
static const Op log2_op = function<Log2>(
    "log2", {.by_operand = [](auto& dy, auto& a) { return div(dy, mul(a, 0x1.62e42fefa39efp-1)); },
             .range = {0.5, 2}});
static const Op log10_op = function<Log10>(
    "log10", {.by_operand = [](auto& dy, auto& a) { return div(dy, mul(a, 0x1.26bb1bbb55516p+1)); },
              .range = {0.5, 2}});
static const Op logaddexp_op = floating_elementwise<LogAddExp, 2>({
    .name = "logaddexp",
    .backward = give_each({[](auto& g) { return mul(g.grad(), sigmoid(sub(g.in(0), g.in(1)))); },
                           [](auto& g) { return mul(g.grad(), sigmoid(sub(g.in(1), g.in(0)))); }}),
    .samples = samples_of_two(),
});

Tensor pow(const Tensor& a, const Tensor& b) {
  if (!is_complex(a) && !is_complex(b)) return call_promoted(pow_op, a, b);
  check_tensor("pow", a, b);
  const DType dtype = promote(a.dtype(), b.dtype());
  return complex_power(as_dtype(a, dtype), as_dtype(b, dtype));
}
Tensor pow(const Tensor& a, const Number& b) {
  if (is_complex(a) && b.kind != Number::Kind::complex && b.value == 2) return mul(a, a);
  if (is_complex(a) || needs_tensor("pow", a, b)) return pow(a, number_like(a, b));
  return pow_number_op({for_scalar("pow", a, b)}, {.values = {b.value}});
}
Tensor pow(const Number& a, const Tensor& b) {
  if (is_complex(b) || needs_tensor("pow", b, a)) return pow(number_like(b, a), b);
  return number_pow_op({for_scalar("pow", b, a)}, {.values = {a.value}});
}
Tensor expm1(const Tensor& a) { return function_of(expm1_op, a); }
Tensor log1p(const Tensor& a) { return function_of(log1p_op, a); }
Tensor log2(const Tensor& a) { return function_of(log2_op, a); }
Tensor log10(const Tensor& a) { return function_of(log10_op, a); }
Tensor logaddexp(const Tensor& a, const Tensor& b) {
  return call_promoted_floating(logaddexp_op, a, b);
}

/// The gradient in `a` is that of PyTorch: dy log(b), but 0 where a is 0 and b at most 0. That in
/// `b` is dy a / b, 0 where both are 0.
static const Op xlogy_op = floating_elementwise<TimesLog, 2>({
    .name = "xlogy",
    .backward = give_each({[](auto& g) {
                             const Tensor is_flat =
                                 logical_and(equal(g.in(0), 0), less_equal(g.in(1), 0));
                             return masked_fill(xlogy(g.grad(), g.in(1)), is_flat, 0);
                           },
                           [](auto& g) {
                             const Tensor is_flat =
                                 logical_and(equal(g.in(0), 0), equal(g.in(1), 0));
                             return mul(g.grad(), masked_fill(div(g.in(0), g.in(1)), is_flat, 0));
                           }}),
    .samples = samples_of_two(0.5),
});

Tensor xlogy(const Tensor& a, const Tensor& b) { return call_promoted_floating(xlogy_op, a, b); }

/// 2 / sqrt(pi) exp(-a^2), the derivative of erf, in f32 for f16 and bf16.
static Tensor erf_derivative(const Tensor& a) {
  return mul(exp(neg(square(in_f32(a)))), 2 * std::numbers::inv_sqrtpi);
}
static Tensor erf_gradient(const Tensor& dy, const Tensor& a) {
  return as_dtype(mul(in_f32(dy), erf_derivative(a)), a.dtype());
}

static const Op erf_op = function<Erf>("erf", {.by_operand = erf_gradient});
static const Op erfc_op = function<Erfc>(
    "erfc", {.by_operand = [](auto& dy, auto& a) { return neg(erf_gradient(dy, a)); }});
static const Op erfinv_op = function<Erfinv>(
    "erfinv",
    {.by_result = [](auto& dy,
                     auto& y) { return as_dtype(div(in_f32(dy), erf_derivative(y)), y.dtype()); },
     .range = {-0.9, 0.9}});
static const Op lgamma_op = function<Lgamma>(
    "lgamma",
    {.by_operand = [](auto& dy, auto& a) { return mul(dy, digamma(a)); }, .range = {0.5, 9}});

/// structure: n.
static const Op polygamma_op = floating_elementwise<Polygamma, 1>({
    .name = "polygamma",
    .structure = {"n",
                  [](const Dims& s, std::span<const Shape>) { return s.ndim() == 1 && s[0] >= 0; }},
    .backward =
        [](const Grad& g) { g.give(0, mul(g.grad(), polygamma(g.attribute(0) + 1, g.in(0)))); },
    .samples = {sample_with({{5, 7}}, {0}, {}, 0.5, 9), sample_with({{5, 3}}, {2}, {}, 1.5, 9)},
});

static Tensor igamma_slope(const Grad& g);

/// structure: whether upper. The derivative in x is x^(a - 1) exp(-x) / gamma(a).
static const Op igamma_op = floating_elementwise<Igamma, 2>({
    .name = "igamma",
    .structure = one_flag("upper"),
    .backward =
        [](const Grad& g) {
          const Tensor a = g.in(0), x = g.in(1);
          if (g.wants(0)) g.give(0, mul(g.grad(), igamma_slope(g)));
          const Tensor density = exp(sub(sub(mul(sub(a, 1), log(x)), x), lgamma(a)));
          g.give(1, mul(g.attribute(0) ? neg(g.grad()) : g.grad(), density));
        },
    .samples = {sample_with({{5, 7}, {5, 7}}, {0}, {}, 0.5, 5),
                sample_with({{7}, {5, 1}}, {1}, {}, 0.5, 5)},
});

/// The derivative in `a` by central differences, to 8 digits: it has no closed form.
static Tensor igamma_slope(const Grad& g) {
  const Tensor a = as_dtype(g.in(0), DType::f64), x = as_dtype(g.in(1), DType::f64);
  const Tensor step = where(less(a, 2e-4), mul(a, 0.5), next_to(a, 1e-4));
  const Tensor rise = sub(igamma_op({add(a, step), x}, g.attributes()),
                          igamma_op({sub(a, step), x}, g.attributes()));
  return as_dtype(div(rise, mul(step, 2)), g.in_dtype(0));
}

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
    .samples = {sample_with({{5, 7}}, {0}), sample_with({{5, 3}}, {1}, {}, 0.5)},
});

Tensor erf(const Tensor& a) { return function_of(erf_op, a); }
Tensor erfc(const Tensor& a) { return function_of(erfc_op, a); }
Tensor erfinv(const Tensor& a) { return function_of(erfinv_op, a); }
Tensor lgamma(const Tensor& a) { return function_of(lgamma_op, a); }
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
  check_tensor(what, a, x);
  return call_promoted_floating(igamma_op, a, x, {.structure = {upper ? 1 : 0}});
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

// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/powers.h"

#include <cmath>
#include <limits>

#include "ops/functions.h"
#include "ops/promotion.h"
#include "src/kernels/math/logarithms.h"
#include "weft/ops/factories.h"

namespace weft {

namespace {

/// By squaring, modulo 2^64. A negative exponent truncates the quotient to an integer (0 for 0).
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
/// Gradient of the base: b a^(b-1); 0 for the exponent 0.
struct PowerBaseGradient {
  template <class T> WEFT_FN T operator()(T gradient, T a, T b) const {
    return b == T(0) ? T(0) : gradient * b * pow(a, b - T(1));
  }
};
/// Gradient of the exponent: a^b log(a); 0 for the base 0 where the power is 0 or 1.
struct PowerExponentGradient {
  template <class T> WEFT_FN T operator()(T gradient, T a, T b, T result) const {
    return a == T(0) && b >= T(0) ? T(0) : gradient * result * log(a);
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

}  // namespace

static const Op pow_base_gradient_op = gradient_of<PowerBaseGradient, 3>(
    "pow_base_gradient", {{.shapes = {{7}, {7}, {7}}, .low = 0.5}});
static const Op pow_exponent_gradient_op = gradient_of<PowerExponentGradient, 4>(
    "pow_exponent_gradient", {{.shapes = {{3}, {3}, {3}, {3}}, .low = 0.5}});

static const Op pow_op = elementwise<Power, 2>({
    .name = "pow",
    .backward =
        [](const Grad& g) {
          if (g.wants(0)) g.give(0, pow_base_gradient_op({g.grad(), g.in(0), g.in(1)}));
          if (g.wants(1)) {
            g.give(1, pow_exponent_gradient_op({g.grad(), g.in(0), g.in(1), g.out()}));
          }
        },
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

static const Op expm1_op = floating_function<Expm1>(
    {.name = "expm1", .by_result = [](auto& dy, auto& y) { return mul(dy, add(y, 1)); }});
static const Op log1p_op =
    floating_function<Log1p>({.name = "log1p",
                              .by_operand = [](auto& dy, auto& a) { return div(dy, add(a, 1)); },
                              .low = -0.5});
static const Op log2_op = floating_function<Log2>(
    {.name = "log2",
     .by_operand = [](auto& dy, auto& a) { return div(dy, mul(a, 0x1.62e42fefa39efp-1)); },
     .low = 0.5});
static const Op log10_op = floating_function<Log10>(
    {.name = "log10",
     .by_operand = [](auto& dy, auto& a) { return div(dy, mul(a, 0x1.26bb1bbb55516p+1)); },
     .low = 0.5});
static const Op logaddexp_op = floating_elementwise<LogAddExp, 2>({
    .name = "logaddexp",
    .backward =
        [](const Grad& g) {
          for (int i : {0, 1}) {
            if (!g.wants(i)) continue;
            g.give(i, mul(g.grad(), sigmoid(sub(g.in(i), g.in(1 - i)))));
          }
        },
    .samples = samples_of_two(),
});

Tensor pow(const Tensor& a, const Tensor& b) { return call_promoted(pow_op, a, b); }
Tensor pow(const Tensor& a, Number b) {
  if (b.is_rounded() && is_integer(for_scalar("pow", a, b).dtype())) {
    return pow(a, number_like(a, b));
  }
  return pow_number_op({for_scalar("pow", a, b)}, {.values = {b.value}});
}
Tensor pow(Number a, const Tensor& b) {
  if (a.is_rounded() && is_integer(for_scalar("pow", b, a).dtype())) {
    return pow(number_like(b, a), b);
  }
  return number_pow_op({for_scalar("pow", b, a)}, {.values = {a.value}});
}
Tensor expm1(const Tensor& a) { return expm1_op({as_floating("expm1", a)}); }
Tensor log1p(const Tensor& a) { return log1p_op({as_floating("log1p", a)}); }
Tensor log2(const Tensor& a) { return log2_op({as_floating("log2", a)}); }
Tensor log10(const Tensor& a) { return log10_op({as_floating("log10", a)}); }
Tensor logaddexp(const Tensor& a, const Tensor& b) {
  return call_promoted_floating(logaddexp_op, a, b);
}

}  // namespace weft

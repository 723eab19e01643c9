// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <concepts>
#include <limits>
#include <numbers>

#include "ops/complex.h"
#include "ops/engine/tensor_body.h"
#include "ops/functions.h"
#include "ops/promotion.h"
#include "src/kernels/math/rests.h"
#include "weft/ops.h"

namespace weft {

// Functions that would be three or more ops, fused because they only move memory.

namespace {

struct AddProduct {
  double factor;
  template <class T> WEFT_FN T operator()(T a, T b, T c) const {
    return a + static_cast<T>(factor) * (b * c);
  }
};
struct AddQuotient {
  double factor;
  template <class T> WEFT_FN T operator()(T a, T b, T c) const {
    return a + static_cast<T>(factor) * (b / c);
  }
};
/// Interpolates from the nearer end, so that the weights 0 and 1 give the ends.
struct Lerp {
  template <class T> WEFT_FN T operator()(T a, T b, T weight) const {
    const T apart = b - a;
    return weight < T(0.5) ? a + weight * apart : b - apart * (T(1) - weight);
  }
};
struct LerpNumber {
  double weight;
  template <class T> WEFT_FN T operator()(T a, T b) const {
    return Lerp{}(a, b, static_cast<T>(weight));
  }
};
/// Puts numbers in place of NaN and the infinities.
struct ReplaceNonfinite {
  double nan, positive, negative;
  template <class T> WEFT_FN T operator()(T a) const {
    constexpr T kInfinity = std::numeric_limits<T>::infinity();
    const T number = a != a ? static_cast<T>(nan) : a;
    const T below = a == kInfinity ? static_cast<T>(positive) : number;
    return a == -kInfinity ? static_cast<T>(negative) : below;
  }
};
struct Rest {
  WEFT_FN double operator()(double a, double b) const { return std::fmod(a, b); }
  /// Quotients of floats below 2^53 have an exact rest in one fused operation.
  WEFT_FN float operator()(float a, float b) const {
    const double x = static_cast<double>(a), size = std::fabs(static_cast<double>(b));
    const double quotient = std::trunc(x / size);
    if (!(std::fabs(quotient) < 0x1p53) || std::isinf(b)) return std::fmod(a, b);
    double rest = std::fma(-quotient, size, x);
    if (rest != 0 && (rest < 0) != (x < 0)) rest += x < 0 ? -size : size;
    return static_cast<float>(std::copysign(rest, x));
  }
  template <std::floating_point T> T plain(T a, T b, int& rare) const {
    return plain_rest(a, b, rare);
  }
};
/// log(a / (1 - a)) of `a` between eps and 1 - eps; a negative eps has no effect.
struct Logit {
  double eps;
  template <class T> WEFT_FN T operator()(T a) const {
    const T low = static_cast<T>(eps), high = static_cast<T>(1 - eps);
    // The lower bound counts where they cross, as in PyTorch.
    const T below = a > high ? high : a;
    const T inside = a < low ? low : below;
    const T x = eps < 0 ? a : inside;
    return log(x / (T(1) - x));
  }
};
/// NaN stays; a lower bound above the upper one has no effect.
struct ClipToBounds {
  double low, high;
  template <class T> WEFT_FN T operator()(T a) const {
    const T raised = a < static_cast<T>(low) ? static_cast<T>(low) : a;
    return raised > static_cast<T>(high) ? static_cast<T>(high) : raised;
  }
};

}  // namespace

/// value: the factor.
static const Op addcmul_op = floating_elementwise<AddProduct, 3>({
    .name = "addcmul",
    .linear = {{0, 1}, {0, 2}},
    .backward =
        [](const Grad& g) {
          g.give(0, g.grad());
          if (!g.wants(1) && !g.wants(2)) return;
          const Tensor scaled = mul(g.grad(), g.value(0));
          if (g.wants(1)) g.give(1, mul(scaled, g.in(2)));
          if (g.wants(2)) g.give(2, mul(scaled, g.in(1)));
        },
    .samples = {{.shapes = {{5, 7}, {5, 7}, {5, 7}}, .attributes = {.values = {-1.5}}},
                {.shapes = {{7}, {5, 1}, {3, 5, 7}}, .attributes = {.values = {2}}}},
});

/// value: the factor.
static const Op addcdiv_op = floating_elementwise<AddQuotient, 3>({
    .name = "addcdiv",
    .linear = {{0, 1}},
    .backward =
        [](const Grad& g) {
          g.give(0, g.grad());
          if (!g.wants(1) && !g.wants(2)) return;
          const Tensor scaled = div(mul(g.grad(), g.value(0)), g.in(2));
          if (g.wants(1)) g.give(1, scaled);
          if (g.wants(2)) g.give(2, neg(mul(scaled, div(g.in(1), g.in(2)))));
        },
    .saves_in = std::vector<int>{1, 2},
    .samples = {{.shapes = {{5, 7}, {5, 7}, {5, 7}}, .attributes = {.values = {-1.5}}, .low = 0.5},
                {.shapes = {{7}, {5, 1}, {3, 5, 7}}, .attributes = {.values = {2}}, .low = 0.5}},
});

static const Op lerp_op = floating_elementwise<Lerp, 3>({
    .name = "lerp",
    .linear = {{0, 1}},
    .backward = give_each({[](auto& g) { return mul(g.grad(), sub(1, g.in(2))); },
                           [](auto& g) { return mul(g.grad(), g.in(2)); },
                           [](auto& g) { return mul(g.grad(), sub(g.in(1), g.in(0))); }}),
    .saves_in = std::vector<int>{0, 1, 2},
    .samples = {{.shapes = {{5, 7}, {5, 7}, {5, 7}}}, {.shapes = {{7}, {5, 1}, {3, 5, 7}}}},
});

/// value: the weight.
static const Op lerp_number_op = floating_elementwise<LerpNumber, 2>({
    .name = "lerp_number",
    .linear = {{0, 1}},
    .backward = give_each({[](auto& g) { return mul(g.grad(), 1 - g.value(0)); },
                           [](auto& g) { return mul(g.grad(), g.value(0)); }}),
    .samples = {{.shapes = {{5, 7}, {5, 7}}, .attributes = {.values = {0.25}}},
                {.shapes = {{7}, {5, 1}}, .attributes = {.values = {1.5}}}},
});

/// values: ReplaceNonfinite.
static const Op nan_to_num_op = floating_elementwise<ReplaceNonfinite, 1>({
    .name = "nan_to_num",
    .backward =
        [](const Grad& g) { g.give(0, masked_fill(g.grad(), logical_not(isfinite(g.in(0))), 0)); },
    .samples = {{.shapes = {{5, 7}}, .attributes = {.values = {1, 2, -2}}}},
});

static const Op fmod_op = floating_elementwise<Rest, 2>({
    .name = "fmod",
    .backward =
        give_each({[](auto& g) { return g.grad(); },
                   [](auto& g) { return neg(mul(g.grad(), trunc(div(g.in(0), g.in(1))))); }}),
    .samples = samples_of_two(0.5),
});

static Tensor call_on_three(const Op& op, const Tensor& a, const Tensor& b, const Tensor& c,
                            const Attributes& attributes = kNoAttributes) {
  check_tensor(op.spec().name.c_str(), a, b, c);
  const DType dtype = promote(promote(a.dtype(), b.dtype()), c.dtype());
  const DType both = is_floating(dtype) ? dtype : DType::f32;
  return op({as_dtype(a, both), as_dtype(b, both), as_dtype(c, both)}, attributes);
}

static bool has_integers_only(const Tensor& a, const Tensor& b, const Tensor& c) {
  for (const Tensor& x : {a, b, c}) {
    if (!x || is_floating(x.dtype())) return false;
  }
  return true;
}

static bool any_complex(const Tensor& a, const Tensor& b, const Tensor& c, const Number& value) {
  return is_complex(a) || is_complex(b) || is_complex(c) || value.kind == Number::Kind::complex;
}

Tensor addcmul(const Tensor& a, const Tensor& b, const Tensor& c, const Number& value) {
  if (!has_integers_only(a, b, c) && !any_complex(a, b, c, value))
    return call_on_three(addcmul_op, a, b, c, {.values = {value.value}});
  check_tensor("addcmul", a, b, c);
  // A product of narrower integers would wrap.
  const Tensor product = mul(as_dtype(b, promote(a.dtype(), b.dtype())), c);
  return add(a, is_real(value, 1) ? product : mul(product, value));
}

Tensor addcdiv(const Tensor& a, const Tensor& b, const Tensor& c, const Number& value) {
  if (any_complex(a, b, c, value)) return add(a, mul(div(b, c), value));
  return call_on_three(addcdiv_op, a, b, c, {.values = {value.value}});
}

Tensor lerp(const Tensor& a, const Tensor& b, const Operand& weight) {
  if (has_integers_only(a, b, a) || is_complex(a))
    return add(a, mul(next_to(a, weight), sub(b, a)));
  if (weight.is_number() && weight.number.kind == Number::Kind::complex) {
    return lerp(a, b, next_to(a, weight));
  }
  if (!weight.is_number()) return call_on_three(lerp_op, a, b, weight.tensor);
  return call_promoted_floating(lerp_number_op, a, b, {.values = {weight.number.value}});
}

Tensor fmod(const Tensor& a, const Tensor& b) {
  if (a && b && (is_floating(a.dtype()) || is_floating(b.dtype()))) {
    return call_promoted_floating(fmod_op, a, b);
  }
  const Tensor rest = remainder(a, b);  // its sign is that of b
  if (!is_integer(rest.dtype()) || is_unsigned(rest.dtype())) return rest;
  const Tensor differs = not_equal(less(rest, 0), less(a, 0));
  return where(logical_and(not_equal(rest, 0), differs), sub(rest, b), rest);
}

static double largest(DType dtype) {
  switch (dtype) {
    case DType::f64: return std::numeric_limits<double>::max();
    case DType::f16: return 65504;
    case DType::bf16: return 0x1.fep127;
    default: return std::numeric_limits<float>::max();
  }
}

Tensor nan_to_num(const Tensor& a, double nan, std::optional<double> posinf,
                  std::optional<double> neginf) {
  if (!a) fail("nan_to_num: no tensor is given, expected one");
  if (!is_floating(a.dtype())) return clone(a);
  const double most = largest(a.dtype());
  const ReplaceNonfinite numbers{nan, posinf.value_or(most), neginf.value_or(-most)};
  return nan_to_num_op({a}, {.values = pack_values(numbers)});
}

/// values: ClipToBounds.
static const Op clip_numbers_op = floating_elementwise<ClipToBounds, 1>({
    .name = "clip_numbers",
    .backward =
        [](const Grad& g) {
          const auto [low, high] = unpack<ClipToBounds>(g.attributes().values);
          const Tensor inside = logical_and(greater_equal(g.in(0), low), less_equal(g.in(0), high));
          // The gradient may be infinite: a product by 0 would be NaN.
          g.give(0, where(inside, g.grad(), number_like(g.grad(), 0)));
        },
    .samples = {{.shapes = {{5, 7}}, .attributes = {.values = {-0.5, 1}}}},
});

Tensor next_to(const Tensor& a, const Operand& b) {
  return b.is_number() ? number_like(a, b.number) : b.tensor;
}

/// Drops a bound that keeps all values of an integer dtype.
static std::optional<Operand> bound_within(const Tensor& a, const std::optional<Operand>& bound,
                                           bool is_low) {
  const DType dtype = a.dtype();
  if (bound && bound->number.kind == Number::Kind::complex) return bound;
  if (!bound || !bound->is_number() || is_floating(dtype) || dtype == DType::boolean) return bound;
  const double value = bound->number.value;
  const IntegerRange range = range_of(dtype);
  if (bound->number.is_rounded() && holds(dtype, bound->number)) return bound;
  if (is_low ? value <= range.least : value >= range.end - 1) return {};
  if (is_low ? value >= range.end : value < range.least) {
    fail("clip: the bound is ", value, ", expected one that a tensor of ", dtype, " holds");
  }
  return bound;
}

/// True when a bound is absent or a real number; false for NaN, which makes all elements NaN.
static bool is_number(const std::optional<Operand>& bound) {
  return !bound || (bound->is_number() && !std::isnan(bound->number.value) &&
                    bound->number.kind != Number::Kind::complex);
}

Tensor clip(const Tensor& a, const std::optional<Operand>& low,
            const std::optional<Operand>& high) {
  check_tensor("clip", a);
  const std::optional<Operand> least = bound_within(a, low, true);
  const std::optional<Operand> most = bound_within(a, high, false);
  if (!least && !most) return clone(a);
  if (is_floating(a.dtype()) && is_number(least) && is_number(most)) {
    const double infinity = std::numeric_limits<double>::infinity();
    const ClipToBounds bounds{least ? least->number.value : -infinity,
                              most ? most->number.value : infinity};
    return clip_numbers_op({a}, {.values = pack_values(bounds)});
  }
  const Tensor raised = least ? maximum(a, next_to(a, *least)) : a;
  return most ? minimum(raised, next_to(raised, *most)) : raised;
}

Tensor reciprocal(const Tensor& a) { return div(1, a); }

static Tensor floating(const Tensor& a) { return is_floating(a.dtype()) ? a : cast(a, DType::f32); }

Tensor gelu(const Tensor& a, std::string_view approximate) {
  if (approximate == "none") return gelu(a);
  if (approximate != "tanh") {
    fail("gelu: approximate is ", in_quotes(approximate), ", expected none or tanh");
  }
  return gelu_tanh(a);
}

Tensor rsub(const Tensor& a, const Operand& b, const Number& alpha) {
  check_tensor("rsub", a);
  const Tensor from = next_to(a, b);
  if (is_real(alpha, 1) || !from) return sub(from, a);
  return sub(from, mul(as_dtype(a, promote(a.dtype(), from.dtype())), alpha));
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

/// Calls a composition of two operands in the floating dtype that both promote to; for f16 and bf16
/// in f32, and rounds once.
template <class Function>
static Tensor composed_of(const char* what, const Tensor& a, const Tensor& b,
                          const Function& function) {
  check_tensor(what, a, b);
  const DType both = promote(a.dtype(), b.dtype());
  const DType dtype = is_floating(both) ? both : DType::f32;
  const DType wide = size_of(dtype) == 2 ? DType::f32 : dtype;
  return as_dtype(function(as_dtype(a, wide), as_dtype(b, wide)), dtype);
}

Tensor ldexp(const Tensor& a, const Tensor& b) {
  return composed_of("ldexp", a, b,
                     [](const Tensor& x, const Tensor& y) { return mul(x, pow(2.0, y)); });
}

Tensor float_power(const Tensor& a, const Tensor& b) {
  return pow(cast(a, DType::f64), cast(b, DType::f64));
}

Tensor exp2(const Tensor& a) { return pow(2.0, floating(a)); }

/// value: eps, or -1.
static const Op logit_op = floating_elementwise<Logit, 1>({
    .name = "logit",
    .backward =
        [](const Grad& g) {
          const double eps = g.value(0);
          Tensor x = g.in(0), outside;
          if (eps >= 0) {
            outside = logical_or(less(x, eps), greater(x, 1 - eps));
            x = masked_fill(x, outside, 0.5);
          }
          const Tensor made = div(g.grad(), mul(x, sub(1, x)));
          g.give(0, outside ? masked_fill(made, outside, 0) : made);
        },
    .saves_in = std::vector<int>{0},
    .samples = {{.shapes = {{5, 7}}, .attributes = {.values = {-1}}, .low = 0.1, .high = 0.9},
                {.shapes = {{5, 3}}, .attributes = {.values = {0.25}}, .low = -0.5, .high = 1.5}},
});

Tensor logit(const Tensor& a, std::optional<double> eps) {
  return logit_op({floating(a)}, {.values = {eps.value_or(-1)}});
}

Tensor logaddexp2(const Tensor& a, const Tensor& b) {
  return composed_of("logaddexp2", a, b, [](const Tensor& x, const Tensor& y) {
    const double ln2 = std::numbers::ln2;
    return div(logaddexp(mul(x, ln2), mul(y, ln2)), ln2);
  });
}

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include "ops/complex.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "ops/engine/tensor_body.h"
#include "ops/functions.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/math/logarithms.h"
#include "src/kernels/math/math.h"
#include "weft/ops.h"

namespace weft {

// These ops are not among all_ops(), whose samples are real. Their kernels run on the CPU.

namespace {

template <class R> std::complex<R> as_std(Complex<R> a) { return {a.re, a.im}; }
template <class R> Complex<R> from_std(const std::complex<R>& a) { return {a.real(), a.imag()}; }

/// Defines a functor that calls a function of the standard library, which has C99's special values.
#define WEFT_COMPLEX_FUNCTOR(Name, function)                       \
  struct Name : TakesComplex {                                     \
    template <class R> Complex<R> operator()(Complex<R> a) const { \
      return from_std(std::function(as_std(a)));                   \
    }                                                              \
  };
WEFT_COMPLEX_FUNCTOR(ComplexExp, exp)
WEFT_COMPLEX_FUNCTOR(ComplexLog, log)
WEFT_COMPLEX_FUNCTOR(ComplexSqrt, sqrt)
WEFT_COMPLEX_FUNCTOR(ComplexSin, sin)
WEFT_COMPLEX_FUNCTOR(ComplexCos, cos)
WEFT_COMPLEX_FUNCTOR(ComplexTan, tan)
WEFT_COMPLEX_FUNCTOR(ComplexAsin, asin)
WEFT_COMPLEX_FUNCTOR(ComplexAcos, acos)
WEFT_COMPLEX_FUNCTOR(ComplexAtan, atan)
WEFT_COMPLEX_FUNCTOR(ComplexSinh, sinh)
WEFT_COMPLEX_FUNCTOR(ComplexCosh, cosh)
WEFT_COMPLEX_FUNCTOR(ComplexTanh, tanh)
WEFT_COMPLEX_FUNCTOR(ComplexAsinh, asinh)
WEFT_COMPLEX_FUNCTOR(ComplexAcosh, acosh)
WEFT_COMPLEX_FUNCTOR(ComplexAtanh, atanh)
#undef WEFT_COMPLEX_FUNCTOR

struct ComplexNeg : TakesComplex {
  template <class T> T operator()(T a) const { return -a; }
};
struct Conjugate : TakesComplex {
  template <class R> Complex<R> operator()(Complex<R> a) const { return {a.re, -a.im}; }
};
struct ComplexPower : TakesComplex {
  template <class R> Complex<R> operator()(Complex<R> a, Complex<R> b) const {
    if (b == Complex<R>(0)) return Complex<R>(1);
    return from_std(std::pow(as_std(a), as_std(b)));
  }
};
/// exp(x) - 1 without cancellation near 0: e^re - 1 - 2 e^re sin^2(im / 2) + i e^re sin(im).
struct ComplexExpm1 : TakesComplex {
  template <class R> Complex<R> operator()(Complex<R> a) const {
    if (a.im == 0) return {std::expm1(a.re) + R(0), a.im};  // +0 for -0
    if (!std::isfinite(a.re)) {                             // infinities and NaN as in C99
      const Complex<R> power = from_std(std::exp(as_std(a)));
      return {power.re - 1, power.im};
    }
    const R grown = std::exp(a.re), half = std::sin(a.im / 2);
    return {std::expm1(a.re) - 2 * grown * half * half, grown * std::sin(a.im)};
  }
};
/// log(1 + x) without cancellation near 0.
struct ComplexLog1p : TakesComplex {
  template <class R> Complex<R> operator()(Complex<R> a) const {
    const R length = std::hypot(a.re, a.im);
    const R log = length < R(0.5) ? std::log1p(a.re * (a.re + 2) + a.im * a.im) / 2
                                  : std::log(std::hypot(a.re + 1, a.im));
    return {log, std::atan2(a.im, a.re + 1)};
  }
};

struct MagnitudeOf {
  template <class T> WEFT_FN T operator()(T re, T im) const { return hypot(re, im); }
};
struct AngleOf {
  template <class T> WEFT_FN T operator()(T re, T im) const { return std::atan2(im, re); }
};

DType real_result(const Attributes&, std::span<const DType> dtypes, int) {
  return real_dtype(dtypes[0]);
}
DType complex_result(const Attributes&, std::span<const DType> dtypes, int) {
  return complex_dtype(dtypes[0]);
}

/// An op that is not among all_ops() and takes complex numbers.
Op complex_op(OpSpec spec) {
  spec.takes = {anything()};
  spec.complex = true;
  spec.positions.emplace();
  return Op(std::move(spec));
}

/// A function with its derivative, or 1 / that with `is_inverse`, in terms of the operand, or of
/// the result.
template <class F>
Op complex_function_op(const char* name, Tensor (*slope)(const Tensor&), bool by_result = false,
                       bool is_inverse = false) {
  return complex_op(
      {.name = name,
       .rule = "... -> ...",
       .forward = [](const Call& c) { map_with<MapDomain::complex>(F{}, c.out(), c.in(0)); },
       .backward =
           [=](const Grad& g) {
             const Tensor found = conj(slope(by_result ? g.out() : g.in(0)));
             g.give(0, is_inverse ? div(g.grad(), found) : mul(g.grad(), found));
           },
       .saves_in = by_result ? std::vector<int>{} : std::vector<int>{0},
       .saves_out = by_result ? std::vector<int>{0} : std::vector<int>{}});
}

}  // namespace

static const Op view_as_real_op = complex_op({
    .name = "view_as_real",
    .rule_of =
        [](const Attributes&, std::span<const Shape>) {
          return Rule{"... -> ... [+c]", {{"c", 2}}};
        },
    .linear = {{0}},
    .dtype = real_result,
    .forward = [](const Call& c) { copy(c.out(), parts_of(c.in(0))); },
    .backward = [](const Grad& g) { g.give(0, view_as_complex(g.grad())); },
    .saves_in = std::vector<int>{},
});

static const Op view_as_complex_op = complex_op({
    .name = "view_as_complex",
    .rule = "... [c] -> ...",
    .linear = {{0}},
    .dtype = complex_result,
    .forward = [](const Call& c) { copy(parts_of(c.out()), c.in(0)); },
    .backward = [](const Grad& g) { g.give(0, view_as_real(g.grad())); },
    .saves_in = std::vector<int>{},
});

static const Op complex_of_parts_op = complex_op({
    .name = "complex",
    .rule = "..., ... -> ...",
    .linear = {{0, 1}},
    .dtype = complex_result,
    .forward =
        [](const Call& c) {
          copy(part_of(c.out(), false), c.in(0));
          copy(part_of(c.out(), true), c.in(1));
        },
    .backward =
        give_each({[](auto& g) { return real(g.grad()); }, [](auto& g) { return imag(g.grad()); }}),
    .saves_in = std::vector<int>{},
});

static const Op real_op = complex_op({
    .name = "real",
    .rule = "... -> ...",
    .linear = {{0}},
    .dtype = real_result,
    .forward = [](const Call& c) { copy(c.out(), part_of(c.in(0), false)); },
    .backward = [](const Grad& g) { g.give(0, cast(g.grad(), complex_dtype(g.grad().dtype()))); },
    .saves_in = std::vector<int>{},
});

static const Op imag_op = complex_op({
    .name = "imag",
    .rule = "... -> ...",
    .linear = {{0}},
    .dtype = real_result,
    .forward = [](const Call& c) { copy(c.out(), part_of(c.in(0), true)); },
    .backward = [](const Grad& g) { g.give(0, complex(zeros_like(g.grad()), g.grad())); },
    .saves_in = std::vector<int>{},
});

static const Op conj_op = complex_op({
    .name = "conj",
    .rule = "... -> ...",
    .linear = {{0}},
    .forward = [](const Call& c) { map_with<MapDomain::complex>(Conjugate{}, c.out(), c.in(0)); },
    .backward = [](const Grad& g) { g.give(0, conj(g.grad())); },
    .saves_in = std::vector<int>{},
});

static const Op complex_abs_op = complex_op({
    .name = "abs",
    .rule = "... -> ...",
    .dtype = real_result,
    .forward =
        [](const Call& c) {
          map_floating(MagnitudeOf{}, c.out(), part_of(c.in(0), false), part_of(c.in(0), true));
        },
    .backward = [](const Grad& g) { g.give(0, mul(g.grad(), sgn(g.in(0)))); },
});

/// The gradient is i z / |z|^2, and 0 at 0.
static const Op complex_angle_op = complex_op({
    .name = "angle",
    .rule = "... -> ...",
    .dtype = real_result,
    .forward =
        [](const Call& c) {
          map_floating(AngleOf{}, c.out(), part_of(c.in(0), false), part_of(c.in(0), true));
        },
    .backward =
        [](const Grad& g) {
          const Tensor turned = mul(g.in(0), std::complex<double>(0, 1));
          const Tensor slope = div(turned, squared_magnitude(g.in(0)));
          g.give(0, mul(g.grad(), masked_fill(slope, equal(g.in(0), 0), 0)));
        },
});

static const Op complex_neg_op = complex_op({
    .name = "neg",
    .rule = "... -> ...",
    .linear = {{0}},
    .forward = [](const Call& c) { map_with<MapDomain::complex>(ComplexNeg{}, c.out(), c.in(0)); },
    .backward = [](const Grad& g) { g.give(0, neg(g.grad())); },
    .saves_in = std::vector<int>{},
});

static const Op complex_pow_op = complex_op({
    .name = "pow",
    .rule = "..., ... -> ...",
    .forward =
        [](const Call& c) {
          map_with<MapDomain::complex>(ComplexPower{}, c.out(), c.in(0), c.in(1));
        },
    .backward =
        [](const Grad& g) {
          const Tensor a = g.in(0), b = g.in(1);
          if (g.wants(0)) {
            const Tensor slope = masked_fill(mul(b, pow(a, sub(b, 1))), equal(b, 0), 0);
            g.give(0, mul(g.grad(), conj(slope)));
          }
          if (!g.wants(1)) return;
          const Tensor slope = masked_fill(mul(g.out(), log(a)), equal(a, 0), 0);
          g.give(1, mul(g.grad(), conj(slope)));
        },
    .saves_in = std::vector<int>{0, 1},
    .saves_out = {0},
});

using OfTensor = Tensor (*)(const Tensor&);

/// A function by name: an op, or a composition.
struct ComplexFunction {
  const char* name;
  const Op* op;
  OfTensor composed = nullptr;
};

#define WEFT_COMPLEX_OP(name, Functor, ...) \
  static const Op name##_of_complex_op = complex_function_op<Functor>(#name, __VA_ARGS__)
WEFT_COMPLEX_OP(
    exp, ComplexExp, [](const Tensor& y) { return y; }, true);
WEFT_COMPLEX_OP(
    log, ComplexLog, [](const Tensor& a) { return a; }, false, true);
WEFT_COMPLEX_OP(
    sqrt, ComplexSqrt, [](const Tensor& y) { return mul(y, 2); }, true, true);
WEFT_COMPLEX_OP(sin, ComplexSin, [](const Tensor& a) { return cos(a); });
WEFT_COMPLEX_OP(cos, ComplexCos, [](const Tensor& a) { return neg(sin(a)); });
WEFT_COMPLEX_OP(
    tan, ComplexTan, [](const Tensor& y) { return add(mul(y, y), 1); }, true);
WEFT_COMPLEX_OP(asin, ComplexAsin, [](const Tensor& a) { return rsqrt(sub(1, mul(a, a))); });
WEFT_COMPLEX_OP(acos, ComplexAcos, [](const Tensor& a) { return neg(rsqrt(sub(1, mul(a, a)))); });
WEFT_COMPLEX_OP(atan, ComplexAtan, [](const Tensor& a) { return div(1, add(mul(a, a), 1)); });
WEFT_COMPLEX_OP(sinh, ComplexSinh, [](const Tensor& a) { return cosh(a); });
WEFT_COMPLEX_OP(cosh, ComplexCosh, [](const Tensor& a) { return sinh(a); });
WEFT_COMPLEX_OP(
    tanh, ComplexTanh, [](const Tensor& y) { return sub(1, mul(y, y)); }, true);
WEFT_COMPLEX_OP(asinh, ComplexAsinh, [](const Tensor& a) { return rsqrt(add(mul(a, a), 1)); });
WEFT_COMPLEX_OP(acosh, ComplexAcosh,
                [](const Tensor& a) { return mul(rsqrt(sub(a, 1)), rsqrt(add(a, 1))); });
WEFT_COMPLEX_OP(atanh, ComplexAtanh, [](const Tensor& a) { return div(1, sub(1, mul(a, a))); });
WEFT_COMPLEX_OP(
    expm1, ComplexExpm1, [](const Tensor& y) { return add(y, 1); }, true);
WEFT_COMPLEX_OP(log1p, ComplexLog1p, [](const Tensor& a) { return div(1, add(a, 1)); });
#undef WEFT_COMPLEX_OP

static const auto& complex_functions() {
  static const std::array functions = {
      ComplexFunction{"exp", &exp_of_complex_op},
      ComplexFunction{"log", &log_of_complex_op},
      ComplexFunction{"sqrt", &sqrt_of_complex_op},
      ComplexFunction{"sin", &sin_of_complex_op},
      ComplexFunction{"cos", &cos_of_complex_op},
      ComplexFunction{"tan", &tan_of_complex_op},
      ComplexFunction{"asin", &asin_of_complex_op},
      ComplexFunction{"acos", &acos_of_complex_op},
      ComplexFunction{"atan", &atan_of_complex_op},
      ComplexFunction{"sinh", &sinh_of_complex_op},
      ComplexFunction{"cosh", &cosh_of_complex_op},
      ComplexFunction{"tanh", &tanh_of_complex_op},
      ComplexFunction{"asinh", &asinh_of_complex_op},
      ComplexFunction{"acosh", &acosh_of_complex_op},
      ComplexFunction{"atanh", &atanh_of_complex_op},
      ComplexFunction{"expm1", &expm1_of_complex_op},
      ComplexFunction{"log1p", &log1p_of_complex_op},
      ComplexFunction{"neg", &complex_neg_op},
      ComplexFunction{"abs", &complex_abs_op},
      ComplexFunction{"sign", nullptr, sgn},
      ComplexFunction{"square", nullptr, [](const Tensor& a) { return mul(a, a); }},
      ComplexFunction{"rsqrt", nullptr, [](const Tensor& a) { return div(1, sqrt(a)); }},
      ComplexFunction{"sigmoid", nullptr,
                      [](const Tensor& a) { return div(1, add(exp(neg(a)), 1)); }},
      ComplexFunction{"log2", nullptr, [](const Tensor& a) { return div(log(a), std::log(2.0)); }},
      ComplexFunction{"log10", nullptr,
                      [](const Tensor& a) { return div(log(a), std::log(10.0)); }},
  };
  return functions;
}

Tensor complex_function(const Op& op, const Tensor& a) {
  for (const ComplexFunction& function : complex_functions()) {
    if (op.spec().name != function.name) continue;
    return function.op ? (*function.op)({a}) : function.composed(a);
  }
  return op({a});
}

Tensor complex_angle(const Tensor& a) { return complex_angle_op({a}); }

Tensor complex_power(const Tensor& a, const Tensor& b) { return complex_pow_op({a, b}); }

static void check_parts(const char* what, const Tensor& a, const Tensor& b) {
  check_tensor(what, a, b);
  for (const Tensor& x : {a, b}) {
    if (x.dtype() == a.dtype() && (x.dtype() == DType::f32 || x.dtype() == DType::f64)) continue;
    fail(what, ": dtypes are ", a.dtype(), " and ", b.dtype(), ", expected both f32 or both f64");
  }
}

Tensor complex(const Tensor& re, const Tensor& im) {
  check_parts("complex", re, im);
  return complex_of_parts_op({re, im});
}

Tensor polar(const Tensor& abs, const Tensor& angle) {
  check_parts("polar", abs, angle);
  return complex(mul(abs, cos(angle)), mul(abs, sin(angle)));
}

Tensor real(const Tensor& a) {
  check_tensor("real", a);
  return is_complex(a) ? real_op({a}) : a;
}

Tensor imag(const Tensor& a) {
  check_tensor("imag", a);
  return is_complex(a) ? imag_op({a}) : zeros_like(a);
}

Tensor conj(const Tensor& a) {
  check_tensor("conj", a);
  return is_complex(a) ? conj_op({a}) : a;
}

Tensor sgn(const Tensor& a) {
  check_tensor("sgn", a);
  if (!is_complex(a)) return sign(a);
  const Tensor is_zero = equal(a, 0), length = abs(a);
  // Infinity, so that the gradient at 0 is 0 as in PyTorch.
  return div(a, masked_fill(length, is_zero, std::numeric_limits<double>::infinity()));
}

Tensor squared_magnitude(const Tensor& a) { return real(mul(a, conj(a))); }

Tensor view_as_real(const Tensor& a) {
  check_tensor("view_as_real", a);
  if (is_complex(a)) return view_as_real_op({a});
  fail("view_as_real: dtype is ", a.dtype(), ", expected a complex one");
}

Tensor view_as_complex(const Tensor& a) {
  check_tensor("view_as_complex", a);
  if (a.dtype() != DType::f32 && a.dtype() != DType::f64) {
    fail("view_as_complex: dtype is ", a.dtype(), ", expected f32 or f64");
  }
  if (a.ndim() == 0 || a.size(a.ndim() - 1) != 2) {
    fail("view_as_complex: shape is ", a.shape(), ", expected a last dim of size 2");
  }
  return view_as_complex_op({a});
}

std::complex<double> complex_item(const Tensor& a) {
  const Tensor plain = a.detach();
  return {real(plain).item(), imag(plain).item()};
}

}  // namespace weft

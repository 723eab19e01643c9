// SPDX-License-Identifier: Apache-2.0
#include "ops/functions.h"

#include "ops/complex.h"
#include "ops/promotion.h"
#include "src/kernels/math/angles.h"
#include "src/kernels/math/logarithms.h"
#include "src/kernels/math/math.h"
#include "src/kernels/random/random.h"
#include "weft/context.h"
#include "weft/extend/fixed_sums.h"
#include "weft/ops/indexing.h"
#include "weft/ops/networks.h"
#include "weft/ops/special.h"

namespace weft {

namespace {

struct Neg : Wraps, KeepsWidth {
  template <class T> WEFT_FN T operator()(T a) const { return static_cast<T>(-a); }
};
struct Abs : DependsOnSign, KeepsWidth {
  template <class T> WEFT_FN T operator()(T a) const {
    if constexpr (std::is_unsigned_v<T>) {
      return a;
    } else if constexpr (std::is_integral_v<T>) {
      // The least integer is its own absolute value.
      return a < 0 ? static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(a)) : a;
    } else {
      return abs(a);
    }
  }
};
/// -1, 0 or 1; NaN for NaN.
struct Sign : DependsOnSign {
  template <class T> WEFT_FN T operator()(T a) const {
    if constexpr (std::is_unsigned_v<T>) {
      return a != 0;
    } else {
      return a > T(0) ? T(1) : a < T(0) ? T(-1) : a == a ? T(0) : a;
    }
  }
};
struct Square : Wraps {
  template <class T> WEFT_FN T operator()(T a) const { return a * a; }
};
WEFT_FUNCTOR(Exp, exp)
WEFT_FUNCTOR(Log, log)
WEFT_FUNCTOR(Sqrt, sqrt)
WEFT_FUNCTOR(Rsqrt, rsqrt)
WEFT_FUNCTOR(Tanh, tanh)
WEFT_FUNCTOR(Sigmoid, sigmoid)
struct Silu {
  template <class T> WEFT_FN T operator()(T a) const { return a * sigmoid(a); }
};
struct SiluGradient {
  template <class T> WEFT_FN T operator()(T gradient, T a) const {
    T s = sigmoid(a);
    return gradient * s * (T(1) + a * (T(1) - s));
  }
};
struct Gelu {
  template <class T> WEFT_FN T operator()(T a) const {
    return a * T(0.5) * (T(1) + erf(a * T(0.70710678118654752)));
  }
};
/// The derivative is Phi(a) + a phi(a); 0.3989... is 1 / sqrt(2 pi).
struct GeluGradient {
  template <class T> WEFT_FN T operator()(T gradient, T a) const {
    T below = T(0.5) * (T(1) + erf(a * T(0.70710678118654752)));
    return gradient * (below + a * T(0.39894228040143268) * exp(a * a * T(-0.5)));
  }
};
/// 0.7978... is sqrt(2 / pi).
struct GeluTanh {
  template <class T> WEFT_FN T operator()(T a) const {
    return a * T(0.5) * (T(1) + tanh(T(0.79788456080286536) * (a + T(0.044715) * a * a * a)));
  }
};
struct GeluTanhGradient {
  template <class T> WEFT_FN T operator()(T gradient, T a) const {
    const T t = tanh(T(0.79788456080286536) * (a + T(0.044715) * a * a * a));
    const T slope = T(0.79788456080286536) * (T(1) + T(0.134145) * a * a);
    return gradient * T(0.5) * (T(1) + t + a * (T(1) - t * t) * slope);
  }
};

struct Relu : DependsOnSign {
  template <class T> WEFT_FN T operator()(T a) const { return a > T(0) || a != a ? a : T(0); }
};
/// Takes relu's result: the gradient is 0 where that is 0.
struct ReluGradient {
  template <class T> WEFT_FN T operator()(T gradient, T result) const {
    return result > T(0) || result != result ? gradient : T(0);
  }
};
struct SwigluOf {
  template <class T> WEFT_FN T operator()(T a, T b) const { return a * sigmoid(a) * b; }
};

struct SwigluGradient {
  template <class T> WEFT_FN Pair<T> operator()(T dy, T a, T b) const {
    const T s = sigmoid(a);
    return {dy * b * (s + a * s * (T(1) - s)), dy * (a * s)};
  }
};

WEFT_FUNCTOR(Sin, sine)
WEFT_FUNCTOR(Cos, cosine)
WEFT_FUNCTOR(Tan, tangent)
WEFT_FUNCTOR(Asin, std::asin)
WEFT_FUNCTOR(Acos, std::acos)
WEFT_FUNCTOR(Atan, std::atan)
WEFT_FUNCTOR(Sinh, std::sinh)
WEFT_FUNCTOR(Cosh, std::cosh)
WEFT_FUNCTOR(Asinh, std::asinh)
WEFT_FUNCTOR(Acosh, std::acosh)
WEFT_FUNCTOR(Atanh, std::atanh)
WEFT_FUNCTOR(Atan2, std::atan2)
WEFT_FUNCTOR(Hypot, hypot)
}  // namespace

static const Op neg_op = elementwise<Neg, 1>({
    .name = "neg",
    .linear = {{0}},
    .backward = [](const Grad& g) { g.give(0, neg(g.grad())); },
    .samples = {{{{5, 7}}}},
});
static const Op sign_op = function<Sign, MapDomain::any>("sign", {.is_step = true});
static const Op abs_op = function<Abs, MapDomain::any>(
    "abs", {.by_operand = [](auto& dy, auto& a) { return mul(dy, sign(a)); }});
static const Op square_op = function<Square, MapDomain::any>(
    "square", {.by_operand = [](auto& dy, auto& a) { return mul(mul(dy, a), 2); }});
static const Op exp_op =
    function<Exp>("exp", {.by_result = [](auto& dy, auto& y) { return mul(dy, y); }});
static const Op log_op = function<Log>(
    "log", {.by_operand = [](auto& dy, auto& a) { return div(dy, a); }, .range = {0.5, 2}});
static const Op sqrt_op = function<Sqrt>(
    "sqrt",
    {.by_result = [](auto& dy, auto& y) { return div(mul(dy, 0.5), y); }, .range = {0.5, 2}});
static const Op rsqrt_op = function<Rsqrt>(
    "rsqrt", {.by_result = [](auto& dy, auto& y) { return mul(mul(dy, mul(square(y), y)), -0.5); },
              .range = {0.5, 2}});
static const Op tanh_op = function<Tanh>(
    "tanh", {.by_result = [](auto& dy, auto& y) { return mul(dy, sub(1, square(y))); }});
static const Op sigmoid_op = function<Sigmoid>(
    "sigmoid", {.by_result = [](auto& dy, auto& y) { return mul(dy, mul(y, sub(1, y))); }});

using Operands = std::span<const Tensor>;

static const Op silu_op = fused_function<Silu, SiluGradient>(
    "silu", [](Operands x, const Attributes&) { return Tensors{mul(x[0], sigmoid(x[0]))}; });
static const Op gelu_op =
    fused_function<Gelu, GeluGradient>("gelu", [](Operands x, const Attributes&) {
      return Tensors{mul(mul(x[0], 0.5), add(erf(mul(x[0], 0.70710678118654752)), 1))};
    });
static const Op gelu_tanh_op =
    fused_function<GeluTanh, GeluTanhGradient>("gelu_tanh", [](Operands x, const Attributes&) {
      const Tensor cubed = mul(mul(square(x[0]), x[0]), 0.044715);
      const Tensor t = tanh(mul(add(x[0], cubed), 0.79788456080286536));
      return Tensors{mul(mul(x[0], 0.5), add(t, 1))};
    });

/// operands: the gradient, and relu's result.
static const Op relu_gradient_op =
    gradient_of<ReluGradient>("relu_gradient", [](Operands x, const Attributes&) {
      return Tensors{masked_fill(x[0], less_equal(x[1], 0), 0)};
    });
static const Op relu_op = function<Relu, MapDomain::any>(
    "relu", {.by_result =
                 [](auto& dy, auto& y) {
                   return relu_gradient_op({dy, y});
                 },
             .definition =
                 [](Operands x, const Attributes&) {
                   return Tensors{masked_fill(x[0], less_equal(x[0], 0), 0)};
                 }});

/// Integers stay.
static Tensor function_of_any(const Op& op, const Tensor& a) {
  return is_complex(a) ? complex_function(op, a) : op({a});
}

Tensor neg(const Tensor& a) { return function_of_any(neg_op, a); }
Tensor abs(const Tensor& a) { return function_of_any(abs_op, a); }
Tensor sign(const Tensor& a) { return function_of_any(sign_op, a); }
Tensor square(const Tensor& a) { return function_of_any(square_op, a); }
Tensor exp(const Tensor& a) { return function_of(exp_op, a); }
Tensor log(const Tensor& a) { return function_of(log_op, a); }
Tensor sqrt(const Tensor& a) { return function_of(sqrt_op, a); }
Tensor rsqrt(const Tensor& a) { return function_of(rsqrt_op, a); }
Tensor tanh(const Tensor& a) { return function_of(tanh_op, a); }
Tensor sigmoid(const Tensor& a) { return function_of(sigmoid_op, a); }
Tensor silu(const Tensor& a) { return function_of(silu_op, a); }
Tensor gelu(const Tensor& a) { return function_of(gelu_op, a); }
Tensor gelu_tanh(const Tensor& a) { return function_of(gelu_tanh_op, a); }
Tensor relu(const Tensor& a) { return relu_op({a}); }

static Tensors swiglu_definition(Operands x, const Attributes&) {
  return {mul(mul(x[0], sigmoid(x[0])), x[1])};
}

/// operands: dy, gate, up.
/// Missed layouts: a Partial dy is reduced first, one tensor instead of two results.
static const Op swiglu_backward_op = register_op({
    .name = "swiglu_backward",
    .rule = "..., ..., ... -> ..., ...",
    .forward =
        [](const Call& c) {
          map_pair(SwigluGradient{}, c.out(0), c.out(1), c.in(0), c.in(1), c.in(2));
        },
    .definition = gradient_definition(swiglu_definition, 2),
    .samples = {{{{5, 7}, {5, 7}, {5, 7}}}, {{{2, 5, 3}, {2, 5, 3}, {2, 5, 3}}}},
});

static const Op swiglu_op = floating_elementwise<SwigluOf, 2>({
    .name = "swiglu",
    .linear = {{1}},
    .backward =
        [](const Grad& g) {
          g.give_all({0, 1}, swiglu_backward_op, {g.grad(), g.in(0), g.in(1)});
        },
    .definition = swiglu_definition,
    .saves_in = std::vector<int>{0, 1},
    .samples = {{{{5, 7}, {5, 7}}}, {{{2, 5, 3}, {2, 5, 3}}}},
});

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  if (!gate || !up) fail("swiglu: no tensor is given, expected one");
  if (!(gate.shape() == up.shape())) {
    fail("swiglu: up is ", up.shape(), ", expected ", gate.shape(), ", the shape of the gate");
  }
  return call_promoted(swiglu_op, gate, up);
}

/// values: p; random: seed and stream. Whether an element is dropped depends only on its position
/// in the whole tensor, so it is equal on all ranks of a Partial, and in the gradient.
static const Op dropout_op = register_op({
    .name = "dropout",
    .rule = "... -> ...",
    .linear = {{0}},
    .forward =
        [](const Call& c) {
          const auto& [seed, stream] = c.attributes().random;
          const Region in = c.in_region(0);
          Region out = c.out_region();
          if (const FixedSums* sums = FixedSums::current()) {
            out.box.offset[0] += sums->first_row(), out.shape[0] += sums->first_row();
          }
          dropout(out.block, in.block, out.box, out.shape, {seed, stream}, c.value(0));
        },
    .backward = [](const Grad& g) { g.give(0, dropout_op, {g.grad()}, g.attributes()); },
    .samples = {{.shapes = {{5, 7}}, .attributes = {.values = {0.4}, .random = {1, 2}}},
                {.shapes = {{2, 5, 3}}, .attributes = {.values = {0.5}, .random = {7, 0}}}},
});

Tensor dropout_by(const Attributes& attributes, const Tensor& x) {
  return dropout_op({x}, attributes);
}

Tensor dropout(const Tensor& x, double p) {
  if (!x) fail("dropout: no tensor is given, expected one");
  if (!(p >= 0 && p <= 1)) fail("dropout: probability is ", p, ", expected one in [0, 1]");
  if (!is_floating(x.dtype())) fail("dropout: dtype is ", x.dtype(), ", expected a floating one");
  if (p == 0 || p == 1) return p == 0 ? x : mul(x, 0);
  RandomState& random = Context::current().random;
  return dropout_op({x}, {.values = {p}, .random = {random.seed, random.stream++}});
}

static const Op sin_op =
    function<Sin>("sin", {.by_operand = [](auto& dy, auto& a) { return mul(dy, cos(a)); }});
static const Op cos_op =
    function<Cos>("cos", {.by_operand = [](auto& dy, auto& a) { return neg(mul(dy, sin(a))); }});
static const Op tan_op = function<Tan>(
    "tan",
    {.by_result = [](auto& dy, auto& y) { return mul(dy, add(square(y), 1)); }, .range = {-1, 1}});
static const Op asin_op = function<Asin>(
    "asin", {.by_operand = [](auto& dy, auto& a) { return mul(dy, rsqrt(sub(1, square(a)))); },
             .range = {-0.75, 0.75}});
static const Op acos_op = function<Acos>(
    "acos", {.by_operand = [](auto& dy, auto& a) { return neg(mul(dy, rsqrt(sub(1, square(a))))); },
             .range = {-0.75, 0.75}});
static const Op atan_op = function<Atan>(
    "atan", {.by_operand = [](auto& dy, auto& a) { return div(dy, add(square(a), 1)); }});
static const Op sinh_op =
    function<Sinh>("sinh", {.by_operand = [](auto& dy, auto& a) { return mul(dy, cosh(a)); }});
static const Op cosh_op =
    function<Cosh>("cosh", {.by_operand = [](auto& dy, auto& a) { return mul(dy, sinh(a)); }});
static const Op asinh_op = function<Asinh>(
    "asinh", {.by_operand = [](auto& dy, auto& a) { return mul(dy, rsqrt(add(square(a), 1))); }});
static const Op acosh_op = function<Acosh>(
    "acosh", {.by_operand = [](auto& dy, auto& a) { return mul(dy, rsqrt(sub(square(a), 1))); },
              .range = {1.5, 4}});
static const Op atanh_op = function<Atanh>(
    "atanh", {.by_operand = [](auto& dy, auto& a) { return div(dy, sub(1, square(a))); },
              .range = {-0.75, 0.75}});

static const Op atan2_op = floating_elementwise<Atan2, 2>({
    .name = "atan2",
    .backward =
        [](const Grad& g) {
          Tensor share = div(g.grad(), add(square(g.in(0)), square(g.in(1))));
          if (g.wants(0)) g.give(0, mul(share, g.in(1)));
          if (g.wants(1)) g.give(1, neg(mul(share, g.in(0))));
        },
    .samples = samples_of_two(0.25),
});

static const Op hypot_op = floating_elementwise<Hypot, 2>({
    .name = "hypot",
    .backward =
        [](const Grad& g) {
          for (int i : {0, 1}) {
            if (!g.wants(i)) continue;
            const Tensor slope = div(g.in(i), g.out());
            g.give(i, mul(g.grad(), masked_fill(slope, equal(g.out(), 0), 0)));
          }
        },
    .saves_out = {0},
    .samples = samples_of_two(0.25),
});

Tensor sin(const Tensor& a) { return function_of(sin_op, a); }
Tensor cos(const Tensor& a) { return function_of(cos_op, a); }
Tensor tan(const Tensor& a) { return function_of(tan_op, a); }
Tensor asin(const Tensor& a) { return function_of(asin_op, a); }
Tensor acos(const Tensor& a) { return function_of(acos_op, a); }
Tensor atan(const Tensor& a) { return function_of(atan_op, a); }
Tensor sinh(const Tensor& a) { return function_of(sinh_op, a); }
Tensor cosh(const Tensor& a) { return function_of(cosh_op, a); }
Tensor asinh(const Tensor& a) { return function_of(asinh_op, a); }
Tensor acosh(const Tensor& a) { return function_of(acosh_op, a); }
Tensor atanh(const Tensor& a) { return function_of(atanh_op, a); }
Tensor atan2(const Tensor& y, const Tensor& x) { return call_promoted_floating(atan2_op, y, x); }
Tensor hypot(const Tensor& a, const Tensor& b) { return call_promoted_floating(hypot_op, a, b); }

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/trigonometry.h"

#include "ops/functions.h"
#include "ops/promotion.h"
#include "src/kernels/math/angles.h"
#include "src/kernels/math/logarithms.h"

namespace weft {

namespace {

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
struct Atan2 {
  template <class T> WEFT_FN T operator()(T y, T x) const { return std::atan2(y, x); }
};
struct Hypot {
  template <class T> WEFT_FN T operator()(T a, T b) const { return hypot(a, b); }
};
/// 0 where the result is 0.
struct HypotGradient {
  template <class T> WEFT_FN T operator()(T gradient, T a, T result) const {
    return result == T(0) ? T(0) : gradient * (a / result);
  }
};

}  // namespace

static const Op sin_op = floating_function<Sin>(
    {.name = "sin", .by_operand = [](auto& dy, auto& a) { return mul(dy, cos(a)); }});
static const Op cos_op = floating_function<Cos>(
    {.name = "cos", .by_operand = [](auto& dy, auto& a) { return neg(mul(dy, sin(a))); }});
static const Op tan_op = floating_function<Tan>(
    {.name = "tan",
     .by_result = [](auto& dy, auto& y) { return mul(dy, add(square(y), 1)); },
     .low = -1,
     .high = 1});
static const Op asin_op = floating_function<Asin>(
    {.name = "asin",
     .by_operand = [](auto& dy, auto& a) { return mul(dy, rsqrt(sub(1, square(a)))); },
     .low = -0.75,
     .high = 0.75});
static const Op acos_op = floating_function<Acos>(
    {.name = "acos",
     .by_operand = [](auto& dy, auto& a) { return neg(mul(dy, rsqrt(sub(1, square(a))))); },
     .low = -0.75,
     .high = 0.75});
static const Op atan_op = floating_function<Atan>(
    {.name = "atan", .by_operand = [](auto& dy, auto& a) { return div(dy, add(square(a), 1)); }});
static const Op sinh_op = floating_function<Sinh>(
    {.name = "sinh", .by_operand = [](auto& dy, auto& a) { return mul(dy, cosh(a)); }});
static const Op cosh_op = floating_function<Cosh>(
    {.name = "cosh", .by_operand = [](auto& dy, auto& a) { return mul(dy, sinh(a)); }});
static const Op asinh_op =
    floating_function<Asinh>({.name = "asinh", .by_operand = [](auto& dy, auto& a) {
                                return mul(dy, rsqrt(add(square(a), 1)));
                              }});
static const Op acosh_op = floating_function<Acosh>(
    {.name = "acosh",
     .by_operand = [](auto& dy, auto& a) { return mul(dy, rsqrt(sub(square(a), 1))); },
     .low = 1.5,
     .high = 4});
static const Op atanh_op = floating_function<Atanh>(
    {.name = "atanh",
     .by_operand = [](auto& dy, auto& a) { return div(dy, sub(1, square(a))); },
     .low = -0.75,
     .high = 0.75});

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

static const Op hypot_gradient_op =
    gradient_of<HypotGradient, 3>("hypot_gradient", {{.shapes = {{7}, {7}, {7}}, .low = 0.25}});
static const Op hypot_op = floating_elementwise<Hypot, 2>({
    .name = "hypot",
    .backward =
        [](const Grad& g) {
          for (int i : {0, 1}) {
            if (g.wants(i)) g.give(i, hypot_gradient_op({g.grad(), g.in(i), g.out()}));
          }
        },
    .saves_out = {0},
    .samples = samples_of_two(0.25),
});

Tensor sin(const Tensor& a) { return sin_op({as_floating("sin", a)}); }
Tensor cos(const Tensor& a) { return cos_op({as_floating("cos", a)}); }
Tensor tan(const Tensor& a) { return tan_op({as_floating("tan", a)}); }
Tensor asin(const Tensor& a) { return asin_op({as_floating("asin", a)}); }
Tensor acos(const Tensor& a) { return acos_op({as_floating("acos", a)}); }
Tensor atan(const Tensor& a) { return atan_op({as_floating("atan", a)}); }
Tensor sinh(const Tensor& a) { return sinh_op({as_floating("sinh", a)}); }
Tensor cosh(const Tensor& a) { return cosh_op({as_floating("cosh", a)}); }
Tensor asinh(const Tensor& a) { return asinh_op({as_floating("asinh", a)}); }
Tensor acosh(const Tensor& a) { return acosh_op({as_floating("acosh", a)}); }
Tensor atanh(const Tensor& a) { return atanh_op({as_floating("atanh", a)}); }
Tensor atan2(const Tensor& y, const Tensor& x) { return call_promoted_floating(atan2_op, y, x); }
Tensor hypot(const Tensor& a, const Tensor& b) { return call_promoted_floating(hypot_op, a, b); }

}  // namespace weft

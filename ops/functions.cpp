// SPDX-License-Identifier: Apache-2.0
#include "ops/promotion.h"
#include "src/kernels/map.h"
#include "src/math.h"

namespace weft {

namespace {

struct Neg {
  template <class T>
  WEFT_FN T operator()(T a) const {
    return -a;
  }
};
struct Abs {
  template <class T>
  WEFT_FN T operator()(T a) const {
    return a < T(0) ? -a : a;
  }
};
/// -1, 0 or 1.
struct Sign {
  template <class T>
  WEFT_FN T operator()(T a) const {
    return a > T(0) ? T(1) : a < T(0) ? T(-1) : a;
  }
};
struct Square {
  template <class T>
  WEFT_FN T operator()(T a) const {
    return a * a;
  }
};
struct Exp {
  template <class T>
  WEFT_FN T operator()(T a) const {
    return exp(a);
  }
};
struct Log {
  template <class T>
  WEFT_FN T operator()(T a) const {
    return log(a);
  }
};
struct Sqrt {
  template <class T>
  WEFT_FN T operator()(T a) const {
    return sqrt(a);
  }
};
struct Rsqrt {
  template <class T>
  WEFT_FN T operator()(T a) const {
    return rsqrt(a);
  }
};
struct Tanh {
  template <class T>
  WEFT_FN T operator()(T a) const {
    return tanh(a);
  }
};
struct Sigmoid {
  template <class T>
  WEFT_FN T operator()(T a) const {
    return sigmoid(a);
  }
};
struct Silu {
  template <class T>
  WEFT_FN T operator()(T a) const {
    return a * sigmoid(a);
  }
};
struct SiluGradient {
  template <class T>
  WEFT_FN T operator()(T gradient, T a) const {
    T s = sigmoid(a);
    return gradient * s * (T(1) + a * (T(1) - s));
  }
};
struct Gelu {
  template <class T>
  WEFT_FN T operator()(T a) const {
    return a * T(0.5) * (T(1) + erf(a * T(0.70710678118654752)));
  }
};
/// The derivative is Phi(a) + a phi(a); 0.3989... is 1 / sqrt(2 pi).
struct GeluGradient {
  template <class T>
  WEFT_FN T operator()(T gradient, T a) const {
    T below = T(0.5) * (T(1) + erf(a * T(0.70710678118654752)));
    return gradient * (below + a * T(0.39894228040143268) * exp(a * a * T(-0.5)));
  }
};

using Backward = std::function<void(const Grad&)>;

/// What a function of one number is besides its functor.
struct FunctionSpec {
  const char* name;
  Backward backward;
  std::vector<int> saves_in = {};
  std::vector<int> saves_out = {};
  std::vector<std::vector<int>> linear = {};
  double low = -2;
};

template <class F>
Op function(F functor, FunctionSpec spec) {
  return list({
      .name = spec.name,
      .rule = "... -> ...",
      .linear = spec.linear,
      .forward = [functor](const Call& c) { map(functor, c.out(), c.in(0)); },
      .backward = spec.backward,
      .saves_in = spec.saves_in,
      .saves_out = spec.saves_out,
      .differentiable = spec.backward != nullptr,
      .samples = {{.shapes = {{5, 7}}, .low = spec.low, .high = 2}},
  });
}

/// The same for functions that have floating values only.
template <class F>
Op floating_function(F functor, FunctionSpec spec) {
  return list({
      .name = spec.name,
      .rule = "... -> ...",
      .forward = [functor](const Call& c) { map_floating(functor, c.out(), c.in(0)); },
      .backward = spec.backward,
      .saves_in = spec.saves_in,
      .saves_out = spec.saves_out,
      .samples = {{.shapes = {{5, 7}}, .low = spec.low, .high = 2}},
  });
}

/// A fused gradient: of the result's gradient and the operand. Linear in the former.
template <class F>
Op gradient_of(const char* name, F functor) {
  return list({
      .name = name,
      .rule = "..., ... -> ...",
      .linear = {{0}},
      .forward = [functor](const Call& c) { map_floating(functor, c.out(), c.in(0), c.in(1)); },
      .samples = {{{{5, 7}, {5, 7}}}},
  });
}

}  // namespace

static const Op neg_op = function(
    Neg{},
    {.name = "neg", .backward = [](const Grad& g) { g.give(0, neg(g.grad())); }, .linear = {{0}}});
static const Op sign_op = function(Sign{}, {.name = "sign", .backward = nullptr});
static const Op abs_op = function(
    Abs{}, {.name = "abs",
            .backward = [](const Grad& g) { g.give(0, mul(g.grad(), sign_op({g.in(0)}))); },
            .saves_in = {0}});
static const Op square_op = function(
    Square{}, {.name = "square",
               .backward = [](const Grad& g) { g.give(0, mul(mul(g.grad(), g.in(0)), 2)); },
               .saves_in = {0}});
static const Op exp_op =
    floating_function(Exp{}, {.name = "exp",
                              .backward = [](const Grad& g) { g.give(0, mul(g.grad(), g.out())); },
                              .saves_out = {0}});
static const Op log_op =
    floating_function(Log{}, {.name = "log",
                              .backward = [](const Grad& g) { g.give(0, div(g.grad(), g.in(0))); },
                              .saves_in = {0},
                              .low = 0.5});
static const Op sqrt_op = floating_function(
    Sqrt{}, {.name = "sqrt",
             .backward = [](const Grad& g) { g.give(0, div(mul(g.grad(), 0.5), g.out())); },
             .saves_out = {0},
             .low = 0.5});
static const Op rsqrt_op =
    floating_function(Rsqrt{}, {.name = "rsqrt",
                                .backward =
                                    [](const Grad& g) {
                                      Tensor cube = mul(square(g.out()), g.out());
                                      g.give(0, mul(mul(g.grad(), cube), -0.5));
                                    },
                                .saves_out = {0},
                                .low = 0.5});
static const Op tanh_op = floating_function(
    Tanh{}, {.name = "tanh",
             .backward = [](const Grad& g) { g.give(0, mul(g.grad(), sub(1, square(g.out())))); },
             .saves_out = {0}});
static const Op sigmoid_op = floating_function(
    Sigmoid{},
    {.name = "sigmoid",
     .backward = [](const Grad& g) { g.give(0, mul(g.grad(), mul(g.out(), sub(1, g.out())))); },
     .saves_out = {0}});

static const Op silu_gradient_op = gradient_of("silu_gradient", SiluGradient{});
static const Op silu_op =
    floating_function(Silu{}, {.name = "silu",
                               .backward =
                                   [](const Grad& g) {
                                     g.give(0, silu_gradient_op({g.grad(), g.in(0)}));
                                   },
                               .saves_in = {0}});
static const Op gelu_gradient_op = gradient_of("gelu_gradient", GeluGradient{});
static const Op gelu_op =
    floating_function(Gelu{}, {.name = "gelu",
                               .backward =
                                   [](const Grad& g) {
                                     g.give(0, gelu_gradient_op({g.grad(), g.in(0)}));
                                   },
                               .saves_in = {0}});

Tensor neg(const Tensor& a) { return neg_op({a}); }
Tensor abs(const Tensor& a) { return abs_op({a}); }
Tensor square(const Tensor& a) { return square_op({a}); }
Tensor exp(const Tensor& a) { return exp_op({as_floating("exp", a)}); }
Tensor log(const Tensor& a) { return log_op({as_floating("log", a)}); }
Tensor sqrt(const Tensor& a) { return sqrt_op({as_floating("sqrt", a)}); }
Tensor rsqrt(const Tensor& a) { return rsqrt_op({as_floating("rsqrt", a)}); }
Tensor tanh(const Tensor& a) { return tanh_op({as_floating("tanh", a)}); }
Tensor sigmoid(const Tensor& a) { return sigmoid_op({as_floating("sigmoid", a)}); }
Tensor silu(const Tensor& a) { return silu_op({as_floating("silu", a)}); }
Tensor gelu(const Tensor& a) { return gelu_op({as_floating("gelu", a)}); }

}  // namespace weft

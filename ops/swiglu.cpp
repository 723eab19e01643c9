// SPDX-License-Identifier: Apache-2.0
#include "ops/functions.h"
#include "ops/promotion.h"
#include "src/kernels/math/math.h"
#include "weft/ops/networks.h"

namespace weft {
namespace {

struct SwigluOf {
  template <class T> WEFT_FN T operator()(T a, T b) const { return a * sigmoid(a) * b; }
};

struct SwigluGradient {
  template <class T> WEFT_FN Pair<T> operator()(T dy, T a, T b) const {
    const T s = sigmoid(a);
    return {dy * b * (s + a * s * (T(1) - s)), dy * (a * s)};
  }
};

}  // namespace

/// operands: dy, gate, up.
static const Op swiglu_backward_op = register_op({
    .name = "swiglu_backward",
    .rule = "..., ..., ... -> ..., ...",
    .forward =
        [](const Call& c) {
          map_pair(SwigluGradient{}, c.out(0), c.out(1), c.in(0), c.in(1), c.in(2));
        },
    .samples = {{{{5, 7}, {5, 7}, {5, 7}}}, {{{2, 5, 3}, {2, 5, 3}, {2, 5, 3}}}},
});

static const Op swiglu_op = floating_elementwise<SwigluOf, 2>({
    .name = "swiglu",
    .linear = {{1}},
    .backward =
        [](const Grad& g) {
          Tensors gradients = swiglu_backward_op.call({g.grad(), g.in(0), g.in(1)});
          g.give(0, gradients[0]);
          g.give(1, gradients[1]);
        },
    .samples = {{{{5, 7}, {5, 7}}}, {{{2, 5, 3}, {2, 5, 3}}}},
});

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  if (!gate || !up) fail("swiglu: no tensor is given, expected one");
  if (!(gate.shape() == up.shape())) {
    fail("swiglu: up is ", up.shape(), ", expected ", gate.shape(), ", the shape of the gate");
  }
  return call_promoted(swiglu_op, gate, up);
}

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include "ops/functions.h"
#include "ops/promotion.h"

namespace weft {

namespace {

struct Add : KeepsWidth, Wraps {
  template <class T> WEFT_FN T operator()(T a, T b) const { return static_cast<T>(a + b); }
};
struct Sub : KeepsWidth, Wraps {
  template <class T> WEFT_FN T operator()(T a, T b) const { return static_cast<T>(a - b); }
};
struct Mul : KeepsWidth, Wraps {
  template <class T> WEFT_FN T operator()(T a, T b) const {
    // Products of 16 bits are computed as int, which may overflow.
    if constexpr (std::is_integral_v<T>) return static_cast<T>(uint64_t{1} * a * b);
    return a * b;
  }
};
struct Div {
  template <class T> WEFT_FN T operator()(T a, T b) const { return a / b; }
};
struct AddNumber {
  static constexpr bool kWraps = true;
  double number;
  template <class T> WEFT_FN T operator()(T a) const { return a + number_as<T>(number); }
};
struct MulNumber {
  static constexpr bool kWraps = true;
  double number;
  template <class T> WEFT_FN T operator()(T a) const { return a * number_as<T>(number); }
};
struct DivNumber {
  double number;
  template <class T> WEFT_FN T operator()(T a) const { return a / static_cast<T>(number); }
};
struct NumberDiv {
  double number;
  template <class T> WEFT_FN T operator()(T a) const { return static_cast<T>(number) / a; }
};

}  // namespace

static const Op add_op = elementwise<Add, 2>({
    .name = "add",
    .linear = {{0, 1}},
    .backward =
        [](const Grad& g) {
          g.give(0, g.grad());
          g.give(1, g.grad());
        },
    .saves_in = std::vector<int>{},
    .samples = {{{{5, 7}, {5, 7}}}, {{{3, 5, 7}, {1, 7}}}, {{{7}, {2, 5, 1}}}},
});

static const Op sub_op = elementwise<Sub, 2>({
    .name = "sub",
    .linear = {{0, 1}},
    .backward =
        [](const Grad& g) {
          g.give(0, g.grad());
          if (g.wants(1)) g.give(1, neg(g.grad()));
        },
    .saves_in = std::vector<int>{},
    .samples = {{{{5, 7}, {5, 7}}}, {{{3, 5, 7}, {5, 1}}}},
});

static const Op mul_op = elementwise<Mul, 2>({
    .name = "mul",
    .linear = {{0}, {1}},
    .backward =
        [](const Grad& g) {
          if (g.wants(0)) g.give(0, mul(g.grad(), g.in(1)));
          if (g.wants(1)) g.give(1, mul(g.grad(), g.in(0)));
        },
    .samples = {{{{5, 7}, {5, 7}}}, {{{3, 5, 7}, {1, 7}}}},
});

static const Op div_op = floating_elementwise<Div, 2>({
    .name = "div",
    .linear = {{0}},
    .backward =
        [](const Grad& g) {
          Tensor quotient = div(g.grad(), g.in(1));
          g.give(0, quotient);
          if (g.wants(1)) g.give(1, neg(mul(quotient, g.out())));
        },
    .saves_in = std::vector<int>{1},
    .saves_out = {0},
    .samples = {{.shapes = {{5, 7}, {5, 7}}, .low = 0.5, .high = 2}},
});

static const Op add_number_op = register_op({
    .name = "add_number",
    .rule = "... -> ...",
    .linear = {{0}},
    .forward =
        [](const Call& c) { map(AddNumber{c.counts_here() ? c.value(0) : 0.0}, c.out(), c.in(0)); },
    .backward = [](const Grad& g) { g.give(0, g.grad()); },
    .saves_in = std::vector<int>{},
    .samples = {{.shapes = {{5, 7}}, .attributes = {.values = {1.5}}}},
});

static const Op mul_number_op = elementwise<MulNumber, 1>({
    .name = "mul_number",
    .linear = {{0}},
    .backward = [](const Grad& g) { g.give(0, mul(g.grad(), g.value(0))); },
    .saves_in = std::vector<int>{},
    .samples = {{.shapes = {{5, 7}}, .attributes = {.values = {-1.5}}}},
});

static const Op div_number_op = floating_elementwise<DivNumber, 1>({
    .name = "div_number",
    .linear = {{0}},
    .backward = [](const Grad& g) { g.give(0, div(g.grad(), g.value(0))); },
    .saves_in = std::vector<int>{},
    .samples = {{.shapes = {{5, 7}}, .attributes = {.values = {-1.5}}}},
});

static const Op number_div_op = floating_elementwise<NumberDiv, 1>({
    .name = "number_div",
    .backward = [](const Grad& g) { g.give(0, neg(div(mul(g.grad(), g.out()), g.in(0)))); },
    .saves_out = {0},
    .samples = {{.shapes = {{5, 7}}, .attributes = {.values = {-1.5}}, .low = 0.5, .high = 2}},
});

/// A double cannot represent large integers: these become tensors. Throws for those that the
/// tensor's dtype does not hold.
static bool needs_tensor(const char* what, const Tensor& a, const Number& number) {
  if (!number.is_rounded() || !a || is_floating(a.dtype())) return false;
  check_holds(what, promote(a.dtype(), number), number);
  return true;
}

static Tensor call_with_number(const Op& op, const Tensor& a, const Number& number) {
  const Attributes attributes{.values = {number.value}};
  if (a && is_floating(a.dtype())) return op(std::span(&a, 1), attributes);
  return op({for_scalar(op.spec().name.c_str(), a, number)}, attributes);
}

Tensor add(const Tensor& a, const Tensor& b) { return call_promoted(add_op, a, b); }
Tensor sub(const Tensor& a, const Tensor& b) { return call_promoted(sub_op, a, b); }
Tensor mul(const Tensor& a, const Tensor& b) { return call_promoted(mul_op, a, b); }
Tensor div(const Tensor& a, const Tensor& b) { return call_promoted_floating(div_op, a, b); }
Tensor add(const Tensor& a, Number b) {
  return needs_tensor("add", a, b) ? add(a, number_like(a, b))
                                   : call_with_number(add_number_op, a, b);
}
Tensor sub(const Tensor& a, Number b) {
  if (needs_tensor("sub", a, b)) return sub(a, number_like(a, b));
  // The sum wraps, for unsigned integers too.
  return add_number_op({for_scalar("sub", a, b)}, {.values = {-b.value}});
}
Tensor sub(Number a, const Tensor& b) {
  if (needs_tensor("sub", b, a)) return sub(number_like(b, a), b);
  return add_number_op({neg(for_scalar("sub", b, a))}, {.values = {a.value}});
}
Tensor mul(const Tensor& a, Number b) {
  return needs_tensor("mul", a, b) ? mul(a, number_like(a, b))
                                   : call_with_number(mul_number_op, a, b);
}
Tensor div(const Tensor& a, Number b) {
  return div_number_op({as_floating("div", a)}, {.values = {b.value}});
}
Tensor div(Number a, const Tensor& b) {
  return number_div_op({as_floating("div", b)}, {.values = {a.value}});
}

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include <concepts>

#include "ops/functions.h"
#include "ops/promotion.h"
#include "src/kernels/math/math.h"
#include "src/kernels/math/rests.h"
#include "weft/ops/complex.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"
#include "weft/ops/special.h"

namespace weft {

namespace {

struct Add : KeepsWidth, Wraps, TakesComplex {
  template <class T> WEFT_FN T operator()(T a, T b) const { return static_cast<T>(a + b); }
};
struct Sub : KeepsWidth, Wraps, TakesComplex {
  template <class T> WEFT_FN T operator()(T a, T b) const { return static_cast<T>(a - b); }
};
struct Mul : KeepsWidth, Wraps, TakesComplex {
  template <class T> WEFT_FN T operator()(T a, T b) const {
    // Products of 16 bits are computed as int, which may overflow.
    if constexpr (std::is_integral_v<T>) return static_cast<T>(uint64_t{1} * a * b);
    return a * b;
  }
};
struct Div : TakesComplex {
  template <class T> WEFT_FN T operator()(T a, T b) const { return a / b; }
};
struct AddNumber {
  static constexpr bool kWraps = true, kTakesComplex = true;
  double number;
  template <class T> WEFT_FN T operator()(T a) const { return a + number_as<T>(number); }
};
struct MulNumber {
  static constexpr bool kWraps = true, kTakesComplex = true;
  double number;
  template <class T> WEFT_FN T operator()(T a) const {
    if constexpr (is_complex_type<T>) return a * static_cast<decltype(a.re)>(number);
    return a * number_as<T>(number);
  }
};
struct DivNumber {
  static constexpr bool kTakesComplex = true;
  double number;
  template <class T> WEFT_FN T operator()(T a) const {
    if constexpr (is_complex_type<T>) return {a.re / T(number).re, a.im / T(number).re};
    return a / static_cast<T>(number);
  }
};
struct NumberDiv {
  static constexpr bool kTakesComplex = true;
  double number;
  template <class T> WEFT_FN T operator()(T a) const { return static_cast<T>(number) / a; }
};
WEFT_FUNCTOR(Floor, std::floor)
WEFT_FUNCTOR(Ceil, std::ceil)
WEFT_FUNCTOR(Trunc, std::trunc)
/// Rounds in the default mode, to nearest even.
WEFT_FUNCTOR(Round, std::rint)
struct FloorDivide : DependsOnSign {
  /// Subtracts the remainder first, so that the quotient differs from an integer by rounding only.
  template <class T> WEFT_FN T operator()(T a, T b) const {
    if (b == T(0) || std::isinf(a) || std::isinf(b)) return a / b;
    const T rest = std::fmod(a, b);
    T quotient = (a - rest) / b;
    if (rest != T(0) && (b < T(0)) != (rest < T(0))) quotient -= T(1);
    if (quotient == T(0)) return std::copysign(T(0), a / b);
    const T below = std::floor(quotient);
    return quotient - below > T(0.5) ? below + T(1) : below;
  }
  template <std::floating_point T> T plain(T a, T b, int& rare) const {
    const T rest = plain_rest(a, b, rare);
    const T whole = (a - rest) / b;
    const T quotient = rest != T(0) && (b < T(0)) != (rest < T(0)) ? whole - T(1) : whole;
    const T below = std::floor(quotient), near = quotient - below > T(0.5) ? below + T(1) : below;
    return quotient == T(0) ? std::copysign(T(0), a / b) : near;
  }
  WEFT_FN int64_t operator()(int64_t a, int64_t b) const {
    if (b == 0) return 0;
    if (b == -1) return static_cast<int64_t>(0 - static_cast<uint64_t>(a));
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
  }
  WEFT_FN uint64_t operator()(uint64_t a, uint64_t b) const { return b == 0 ? 0 : a / b; }
};
struct Remainder : DependsOnSign {
  template <class T> WEFT_FN T operator()(T a, T b) const {
    const T rest = std::fmod(a, b);
    if (rest == T(0)) return std::copysign(T(0), b);
    return (b < T(0)) != (rest < T(0)) ? rest + b : rest;
  }
  template <std::floating_point T> T plain(T a, T b, int& rare) const {
    const T rest = plain_rest(a, b, rare);
    const T moved = (b < T(0)) != (rest < T(0)) ? rest + b : rest;
    return rest == T(0) ? std::copysign(T(0), b) : moved;
  }
  WEFT_FN int64_t operator()(int64_t a, int64_t b) const {
    if (b == 0 || b == -1) return 0;
    const int64_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  }
  WEFT_FN uint64_t operator()(uint64_t a, uint64_t b) const { return b == 0 ? 0 : a % b; }
};
struct SignBit : DependsOnSign {
  WEFT_FN bool operator()(uint64_t) const { return false; }
  WEFT_FN bool operator()(float a) const { return std::bit_cast<int32_t>(a) < 0; }
  WEFT_FN bool operator()(double a) const { return std::bit_cast<int64_t>(a) < 0; }
  WEFT_FN bool operator()(int64_t a) const { return a < 0; }
};
WEFT_FUNCTOR(CopySign, std::copysign)

/// The neighbours of a number other than 0 have its bits plus or minus one.
template <class Bits> WEFT_FN Bits neighbour(Bits bits, bool grows) {
  return static_cast<Bits>(grows ? bits + 1 : bits - 1);
}
/// Finds the next number of `dtype`; bf16 and f16 are represented as float.
struct NextAfter {
  DType dtype;
  WEFT_FN double operator()(double a, double b) const { return std::nextafter(a, b); }
  WEFT_FN float operator()(float a, float b) const {
    if (a != a || b != b) return a + b;
    if (a == b) return b;
    const bool grows = a == 0 || (b > a) == (a > 0);
    const float from = a == 0 ? std::copysign(0.0f, b) : a;
    if (dtype == DType::f32) {
      return std::bit_cast<float>(neighbour(std::bit_cast<uint32_t>(from), grows));
    }
    return dtype == DType::bf16 ? half_neighbour<bfloat16>(from, grows)
                                : half_neighbour<float16>(from, grows);
  }
  template <class Half> WEFT_FN static float half_neighbour(float from, bool grows) {
    Half half(from);
    half.bits = neighbour(half.bits, grows);
    return half;
  }
};

}  // namespace

static const Op add_op = elementwise<Add, 2>({
    .name = "add",
    .linear = {{0, 1}},
    .backward = give_each({[](auto& g) { return g.grad(); }, [](auto& g) { return g.grad(); }}),
    .samples = {{{{5, 7}, {5, 7}}}, {{{3, 5, 7}, {1, 7}}}, {{{7}, {2, 5, 1}}}},
});

static const Op sub_op = elementwise<Sub, 2>({
    .name = "sub",
    .linear = {{0, 1}},
    .backward =
        give_each({[](auto& g) { return g.grad(); }, [](auto& g) { return neg(g.grad()); }}),
    .samples = {{{{5, 7}, {5, 7}}}, {{{3, 5, 7}, {5, 1}}}},
});

static const Op mul_op = elementwise<Mul, 2>({
    .name = "mul",
    .linear = {{0}, {1}},
    .backward = give_each({[](auto& g) { return mul(g.grad(), conj(g.in(1))); },
                           [](auto& g) { return mul(g.grad(), conj(g.in(0))); }}),
    .samples = {{{{5, 7}, {5, 7}}}, {{{3, 5, 7}, {1, 7}}}},
});

static const Op div_op = floating_elementwise<Div, 2>({
    .name = "div",
    .linear = {{0}},
    .backward =
        [](const Grad& g) {
          Tensor quotient = div(g.grad(), conj(g.in(1)));
          g.give(0, quotient);
          if (g.wants(1)) g.give(1, neg(mul(quotient, conj(g.out()))));
        },
    .saves_out = {0},
    .samples = {{.shapes = {{5, 7}, {5, 7}}, .low = 0.5, .high = 2}},
});

static const Op add_number_op = register_op({
    .name = "add_number",
    .rule = "... -> ...",
    .complex = true,
    .linear = {{0}},
    .forward =
        [](const Call& c) { map(AddNumber{c.counts_here() ? c.value(0) : 0.0}, c.out(), c.in(0)); },
    .backward = [](const Grad& g) { g.give(0, g.grad()); },
    .samples = {{.shapes = {{5, 7}}, .attributes = {.values = {1.5}}}},
});

static const Op mul_number_op = elementwise<MulNumber, 1>({
    .name = "mul_number",
    .linear = {{0}},
    .backward = [](const Grad& g) { g.give(0, mul(g.grad(), g.value(0))); },
    .samples = {{.shapes = {{5, 7}}, .attributes = {.values = {-1.5}}}},
});

static const Op div_number_op = floating_elementwise<DivNumber, 1>({
    .name = "div_number",
    .linear = {{0}},
    .backward = [](const Grad& g) { g.give(0, div(g.grad(), g.value(0))); },
    .samples = {{.shapes = {{5, 7}}, .attributes = {.values = {-1.5}}}},
});

static const Op number_div_op = floating_elementwise<NumberDiv, 1>({
    .name = "number_div",
    .backward =
        [](const Grad& g) { g.give(0, neg(div(mul(g.grad(), conj(g.out())), conj(g.in(0))))); },
    .saves_out = {0},
    .samples = {{.shapes = {{5, 7}}, .attributes = {.values = {-1.5}}, .low = 0.5, .high = 2}},
});

static Tensor call_with_number(const Op& op, const Tensor& a, const Number& number) {
  Attributes attributes;  // its initializer with names would clear all of its memory
  attributes.values[0] = number.value;
  if (a && is_floating(a.dtype())) return op(std::span(&a, 1), attributes);
  return op({for_scalar(op.spec().name.c_str(), a, number)}, attributes);
}

Tensor add(const Tensor& a, const Tensor& b) { return call_promoted(add_op, a, b); }
Tensor sub(const Tensor& a, const Tensor& b) { return call_promoted(sub_op, a, b); }
Tensor mul(const Tensor& a, const Tensor& b) { return call_promoted(mul_op, a, b); }
Tensor div(const Tensor& a, const Tensor& b) { return call_promoted_floating(div_op, a, b); }
Tensor add(const Tensor& a, const Number& b) {
  return needs_tensor("add", a, b) ? add(a, number_like(a, b))
                                   : call_with_number(add_number_op, a, b);
}
Tensor sub(const Tensor& a, const Number& b) {
  if (needs_tensor("sub", a, b)) return sub(a, number_like(a, b));
  // The sum wraps, for unsigned integers too.
  return add_number_op({for_scalar("sub", a, b)}, {.values = {-b.value}});
}
Tensor sub(const Number& a, const Tensor& b) {
  if (needs_tensor("sub", b, a)) return sub(number_like(b, a), b);
  return add_number_op({neg(for_scalar("sub", b, a))}, {.values = {a.value}});
}
Tensor mul(const Tensor& a, const Number& b) {
  return needs_tensor("mul", a, b) ? mul(a, number_like(a, b))
                                   : call_with_number(mul_number_op, a, b);
}
Tensor div(const Tensor& a, const Number& b) {
  if (b.kind == Number::Kind::complex && a) return div(a, number_like(a, b));
  return div_number_op({as_floating("div", a)}, {.values = {b.value}});
}
Tensor div(const Number& a, const Tensor& b) {
  if (a.kind == Number::Kind::complex && b) return div(number_like(b, a), b);
  return number_div_op({as_floating("div", b)}, {.values = {a.value}});
}

static const Op floor_op = function<Floor>("floor", {.is_step = true});
static const Op ceil_op = function<Ceil>("ceil", {.is_step = true});
static const Op trunc_op = function<Trunc>("trunc", {.is_step = true});
static const Op round_op = function<Round>("round", {.is_step = true});

static const Op floor_divide_op = elementwise<FloorDivide, 2>({
    .name = "floor_divide",
    .backward = give_each({[](auto& g) { return zeros_like(g.grad()); },
                           [](auto& g) { return zeros_like(g.grad()); }}),
    .saves_in = std::vector<int>{},
    .samples = {{.shapes = {{5, 7}, {5, 7}}, .low = 0.5},
                {.shapes = {{7}, {5, 1}}, .dtypes = {i64, i64}, .low = -9, .high = 9}},
});

static const Op remainder_op = elementwise<Remainder, 2>({
    .name = "remainder",
    .backward =
        give_each({[](auto& g) { return g.grad(); },
                   [](auto& g) { return neg(mul(g.grad(), floor_divide(g.in(0), g.in(1)))); }}),
    .samples = {{.shapes = {{5, 7}, {5, 7}}, .low = 0.5},
                {.shapes = {{7}, {5, 1}}, .dtypes = {i64, i64}, .low = -9, .high = 9}},
});

static const Op signbit_op =
    truth_function<SignBit, 1>("signbit", {{{{5, 7}}}, {.shapes = {{5, 7}}, .dtypes = {i32}}});

static const Op copysign_op = floating_elementwise<CopySign, 2>({
    .name = "copysign",
    .backward = give_each({[](auto& g) { return mul(g.grad(), mul(sign(g.in(0)), sign(g.out()))); },
                           [](auto& g) { return zeros_like(g.grad()); }}),
    .saves_in = std::vector<int>{0},
    .saves_out = {0},
    .samples = samples_of_two(),
});

static const Op nextafter_op = register_op({
    .name = "nextafter",
    .rule = "..., ... -> ...",
    .forward =
        [](const Call& c) { map_floating(NextAfter{c.out().dtype}, c.out(), c.in(0), c.in(1)); },
    .samples = {{{{5, 7}, {5, 7}}}, {.shapes = {{5, 7}, {7}}, .dtypes = {bf16, bf16}}},
});

/// Integers are copied.
static Tensor rounded(const Op& op, const Tensor& a) {
  if (!a) fail(op.spec().name, ": no tensor is given, expected one");
  return is_floating(a.dtype()) ? op({a}) : clone(a);
}

Tensor floor(const Tensor& a) { return rounded(floor_op, a); }
Tensor ceil(const Tensor& a) { return rounded(ceil_op, a); }
Tensor trunc(const Tensor& a) { return rounded(trunc_op, a); }
Tensor round(const Tensor& a) { return rounded(round_op, a); }
Tensor floor_divide(const Tensor& a, const Tensor& b) {
  return call_promoted(floor_divide_op, a, b);
}
Tensor remainder(const Tensor& a, const Tensor& b) { return call_promoted(remainder_op, a, b); }
Tensor signbit(const Tensor& a) { return signbit_op({a}); }
Tensor copysign(const Tensor& a, const Tensor& b) {
  return call_promoted_floating(copysign_op, a, b);
}
Tensor nextafter(const Tensor& a, const Tensor& b) {
  return call_promoted_floating(nextafter_op, a, b);
}

}  // namespace weft

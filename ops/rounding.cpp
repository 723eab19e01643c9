// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/rounding.h"

#include "ops/functions.h"
#include "ops/promotion.h"
#include "src/kernels/math/math.h"
#include "weft/ops/factories.h"

namespace weft {

namespace {

WEFT_FUNCTOR(Floor, std::floor)
WEFT_FUNCTOR(Ceil, std::ceil)
WEFT_FUNCTOR(Trunc, std::trunc)
/// In the default rounding mode, to nearest even.
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

static const Op floor_op = floating_function<Floor>({.name = "floor"});
static const Op ceil_op = floating_function<Ceil>({.name = "ceil"});
static const Op trunc_op = floating_function<Trunc>({.name = "trunc"});
static const Op round_op = floating_function<Round>({.name = "round"});

static const Op floor_divide_op = elementwise<FloorDivide, 2>({
    .name = "floor_divide",
    .differentiable = false,
    .samples = {{{{5, 7}, {5, 7}}},
                {.shapes = {{7}, {5, 1}}, .dtypes = {i64, i64}, .low = -9, .high = 9}},
});

static const Op remainder_op = elementwise<Remainder, 2>({
    .name = "remainder",
    .backward =
        [](const Grad& g) {
          g.give(0, g.grad());
          if (g.wants(1)) g.give(1, neg(mul(g.grad(), floor_divide(g.in(0), g.in(1)))));
        },
    .samples = {{.shapes = {{5, 7}, {5, 7}}, .low = 0.5},
                {.shapes = {{7}, {5, 1}}, .dtypes = {i64, i64}, .low = -9, .high = 9}},
});

static const Op signbit_op =
    truth_function<SignBit, 1>("signbit", {{{{5, 7}}}, {.shapes = {{5, 7}}, .dtypes = {i32}}});

static const Op copysign_op = floating_elementwise<CopySign, 2>({
    .name = "copysign",
    .backward =
        [](const Grad& g) {
          g.give(0, mul(g.grad(), mul(sign(g.in(0)), sign(g.out()))));
          if (g.wants(1)) g.give(1, zeros_like(g.grad()));
        },
    .saves_in = std::vector<int>{0},
    .saves_out = {0},
    .samples = samples_of_two(),
});

static const Op nextafter_op = register_op({
    .name = "nextafter",
    .rule = "..., ... -> ...",
    .forward =
        [](const Call& c) { map_floating(NextAfter{c.out().dtype}, c.out(), c.in(0), c.in(1)); },
    .differentiable = false,
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

// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/elementwise.h"

#include "ops/functions.h"
#include "ops/promotion.h"
#include "weft/ops/complex.h"
#include "weft/ops/factories.h"

namespace weft {

namespace {

/// An int, so that both sides of & and | are computed, as vectors are.
template <class T> WEFT_FN int is_true(T a) { return a != T(0) ? 1 : 0; }

struct Not : TakesComplex {
  template <class T> WEFT_FN bool operator()(T a) const { return a == T(0); }
};
struct And : TakesComplex {
  template <class T> WEFT_FN bool operator()(T a, T b) const {
    return (is_true(a) & is_true(b)) != 0;
  }
};
struct Or : TakesComplex {
  template <class T> WEFT_FN bool operator()(T a, T b) const {
    return (is_true(a) | is_true(b)) != 0;
  }
};
struct Xor : TakesComplex {
  template <class T> WEFT_FN bool operator()(T a, T b) const { return (a != T(0)) != (b != T(0)); }
};
struct IsFinite : TakesComplex {
  template <class T> WEFT_FN bool operator()(T a) const { return a - a == T(0); }
};
struct IsInf {
  template <class T> WEFT_FN bool operator()(T a) const {
    return ((a == a ? 1 : 0) & is_true(a - a)) != 0;
  }
};
struct IsNan : TakesComplex {
  template <class T> WEFT_FN bool operator()(T a) const { return a != a; }
};

template <class F> Op predicate(const char* name) {
  return truth_function<F, 1>(name, {{{{5, 7}}}, {.shapes = {{5, 7}}, .dtypes = {boolean}}});
}

template <class F> Op connective(const char* name) {
  return truth_function<F, 2>(name, {{.shapes = {{5, 7}, {5, 7}}, .dtypes = {boolean, boolean}},
                                     {.shapes = {{5, 7}, {7}}, .dtypes = {i64, i64}}});
}

struct Equal : KeepsWidth, TakesComplex {
  template <class T> WEFT_FN bool operator()(T a, T b) const { return a == b; }
};
struct NotEqual : KeepsWidth, TakesComplex {
  template <class T> WEFT_FN bool operator()(T a, T b) const { return a != b; }
};
struct Less : KeepsWidth, DependsOnSign {
  template <class T> WEFT_FN bool operator()(T a, T b) const { return a < b; }
};
struct LessEqual : KeepsWidth, DependsOnSign {
  template <class T> WEFT_FN bool operator()(T a, T b) const { return a <= b; }
};
struct Where : TakesComplex {
  template <class T> WEFT_FN T operator()(T condition, T a, T b) const {
    return condition != T(0) ? a : b;
  }
};
/// NaN if either operand is NaN.
struct Maximum : KeepsWidth, DependsOnSign {
  template <class T> WEFT_FN T operator()(T a, T b) const { return a > b || a != a ? a : b; }
};
struct Minimum : KeepsWidth, DependsOnSign {
  template <class T> WEFT_FN T operator()(T a, T b) const { return a < b || a != a ? a : b; }
};

template <class F> Op comparison(const char* name) {
  return truth_function<F, 2>(
      name, {{{{5, 7}, {5, 7}}}, {.shapes = {{5, 7}, {7}}, .dtypes = {i64, i64}}}, true);
}

/// Each operand gets half of the gradient where both are equal, and all of it where one is NaN, as
/// in PyTorch. Selects instead of multiplying by 0: the gradient may be infinite.
template <bool kIsMaximum> void give_extreme(const Grad& g) {
  for (int i : {0, 1}) {
    if (!g.wants(i)) continue;
    const Tensor &mine = g.in(i), &other = g.in(1 - i);
    const Tensor share = where(equal(mine, other), mul(g.grad(), 0.5), g.grad());
    const Tensor is_other = kIsMaximum ? less(mine, other) : less(other, mine);
    g.give(i, where(is_other, number_like(share, 0), share));
  }
}

template <class F> Op extreme(const char* name) {
  return elementwise<F, 2>({
      .name = name,
      .backward = give_extreme<std::is_same_v<F, Maximum>>,
      .samples = {{{{5, 7}, {5, 7}}}, {{{3, 5, 7}, {5, 1}}}},
  });
}

struct BitNot : KeepsWidth {
  template <class T> WEFT_FN T operator()(T a) const { return static_cast<T>(~a); }
};
struct BitAnd : KeepsWidth {
  template <class T> WEFT_FN T operator()(T a, T b) const { return static_cast<T>(a & b); }
};
struct BitOr : KeepsWidth {
  template <class T> WEFT_FN T operator()(T a, T b) const { return static_cast<T>(a | b); }
};
struct BitXor : KeepsWidth {
  template <class T> WEFT_FN T operator()(T a, T b) const { return static_cast<T>(a ^ b); }
};
struct ShiftLeft {
  WEFT_FN int64_t operator()(int64_t a, int64_t b) const {
    const uint64_t bits = static_cast<uint64_t>(b);
    return bits < 64 ? static_cast<int64_t>(static_cast<uint64_t>(a) << bits) : 0;
  }
};
struct ShiftRight : DependsOnSign {
  WEFT_FN uint64_t operator()(uint64_t a, uint64_t b) const { return b < 64 ? a >> b : 0; }
  WEFT_FN int64_t operator()(int64_t a, int64_t b) const {
    const uint64_t bits = static_cast<uint64_t>(b);
    return a >> (bits < 64 ? bits : 63);
  }
};

template <class F> Op bit_function(const char* name, double low) {
  return elementwise<F, 2, MapDomain::integer>({
      .name = name,
      .differentiable = false,
      .samples = {{.shapes = {{5, 7}, {5, 7}}, .dtypes = {i64, i64}, .low = low, .high = 9},
                  {.shapes = {{5, 7}, {7}}, .dtypes = {u8, u8}, .low = 0, .high = 9}},
  });
}

}  // namespace

static const Op logical_not_op = predicate<Not>("logical_not");
static const Op isfinite_op = predicate<IsFinite>("isfinite");
static const Op isinf_op = predicate<IsInf>("isinf");
static const Op isnan_op = predicate<IsNan>("isnan");
static const Op logical_and_op = connective<And>("logical_and");
static const Op logical_or_op = connective<Or>("logical_or");
static const Op logical_xor_op = connective<Xor>("logical_xor");

Tensor logical_not(const Tensor& a) { return logical_not_op({a}); }
Tensor isfinite(const Tensor& a) { return isfinite_op({a}); }
Tensor isinf(const Tensor& a) {
  if (!a || !is_complex(a.dtype())) return isinf_op({a});
  return logical_or(isinf_op({real(a)}), isinf_op({imag(a)}));
}
Tensor isnan(const Tensor& a) { return isnan_op({a}); }
Tensor logical_and(const Tensor& a, const Tensor& b) { return call_promoted(logical_and_op, a, b); }
Tensor logical_or(const Tensor& a, const Tensor& b) { return call_promoted(logical_or_op, a, b); }
Tensor logical_xor(const Tensor& a, const Tensor& b) { return call_promoted(logical_xor_op, a, b); }

static const Op equal_op = comparison<Equal>("equal");
static const Op not_equal_op = comparison<NotEqual>("not_equal");
static const Op less_op = comparison<Less>("less");
static const Op less_equal_op = comparison<LessEqual>("less_equal");
static const Op maximum_op = extreme<Maximum>("maximum");
static const Op minimum_op = extreme<Minimum>("minimum");

static const Op where_op = elementwise<Where, 3>({
    .name = "where",
    .moves = true,
    .linear = {{1, 2}},
    .dtype = [](const Attributes&, std::span<const DType> dtypes, int) { return dtypes[1]; },
    .backward =
        [](const Grad& g) {
          Tensor zero = zeros_like(g.grad());
          if (g.wants(1)) g.give(1, where(g.in(0), g.grad(), zero));
          if (g.wants(2)) g.give(2, where(g.in(0), zero, g.grad()));
        },
    .samples = {{.shapes = {{5, 7}, {5, 7}, {5, 7}}, .dtypes = {boolean, f32, f32}},
                {.shapes = {{7}, {5, 1}, {3, 5, 7}}, .dtypes = {boolean, f32, f32}}},
});

Tensor equal(const Tensor& a, const Tensor& b) { return call_promoted(equal_op, a, b); }
Tensor not_equal(const Tensor& a, const Tensor& b) { return call_promoted(not_equal_op, a, b); }
Tensor less(const Tensor& a, const Tensor& b) { return call_promoted(less_op, a, b); }
Tensor less_equal(const Tensor& a, const Tensor& b) { return call_promoted(less_equal_op, a, b); }
Tensor greater(const Tensor& a, const Tensor& b) { return call_promoted(less_op, b, a); }
Tensor greater_equal(const Tensor& a, const Tensor& b) {
  return call_promoted(less_equal_op, b, a);
}
Tensor maximum(const Tensor& a, const Tensor& b) { return call_promoted(maximum_op, a, b); }
Tensor minimum(const Tensor& a, const Tensor& b) { return call_promoted(minimum_op, a, b); }

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  if (!condition || !a || !b) fail("where: no tensor is given, expected one");
  if (condition.dtype() != DType::boolean) {
    fail("where: dtype of the condition ", condition.shape(), " is ", condition.dtype(),
         ", expected bool");
  }
  DType dtype = promote(a.dtype(), b.dtype());
  return where_op({condition, as_dtype(a, dtype), as_dtype(b, dtype)});
}

// Bitwise ops. Integers are computed in 64 bits; the dtype keeps the lower ones.

static const Op bitwise_invert_op = elementwise<BitNot, 1, MapDomain::integer>({
    .name = "bitwise_invert",
    .differentiable = false,
    .samples = {{.shapes = {{5, 7}}, .dtypes = {i64}, .low = -9, .high = 9},
                {.shapes = {{5, 7}}, .dtypes = {u8}, .low = 0, .high = 9}},
});
static const Op bitwise_and_op = bit_function<BitAnd>("bitwise_and", -9);
static const Op bitwise_or_op = bit_function<BitOr>("bitwise_or", -9);
static const Op bitwise_xor_op = bit_function<BitXor>("bitwise_xor", -9);
static const Op left_shift_op = bit_function<ShiftLeft>("bitwise_left_shift", 0);
static const Op right_shift_op = bit_function<ShiftRight>("bitwise_right_shift", 0);

static void check_has_bits(const Op& op, const Tensor& a, bool of_bool) {
  if (!a) fail(op.spec().name, ": no tensor is given, expected one");
  if (is_floating(a.dtype()) || (a.dtype() == boolean && !of_bool)) {
    fail(op.spec().name, ": dtype of operand ", a.shape(), " is ", a.dtype(),
         ", expected an integer", of_bool ? " or bool" : "");
  }
}

static Tensor on_bits(const Op& op, const Tensor& a, const Tensor& b, bool of_bool) {
  check_has_bits(op, a, of_bool);
  check_has_bits(op, b, of_bool);
  return call_promoted(op, a, b);
}

Tensor bitwise_invert(const Tensor& a) {
  check_has_bits(bitwise_invert_op, a, true);
  return a.dtype() == boolean ? logical_not(a) : bitwise_invert_op({a});
}
Tensor bitwise_and(const Tensor& a, const Tensor& b) { return on_bits(bitwise_and_op, a, b, true); }
Tensor bitwise_or(const Tensor& a, const Tensor& b) { return on_bits(bitwise_or_op, a, b, true); }
Tensor bitwise_xor(const Tensor& a, const Tensor& b) { return on_bits(bitwise_xor_op, a, b, true); }
Tensor bitwise_left_shift(const Tensor& a, const Tensor& b) {
  return on_bits(left_shift_op, a, b, false);
}
Tensor bitwise_right_shift(const Tensor& a, const Tensor& b) {
  return on_bits(right_shift_op, a, b, false);
}

}  // namespace weft

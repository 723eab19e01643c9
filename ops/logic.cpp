// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/logic.h"

#include "ops/functions.h"
#include "ops/promotion.h"
#include "weft/ops/factories.h"

namespace weft {

namespace {

struct Not {
  template <class T> WEFT_FN bool operator()(T a) const { return a == T(0); }
};
struct And {
  template <class T> WEFT_FN bool operator()(T a, T b) const { return (a != T(0)) & (b != T(0)); }
};
struct Or {
  template <class T> WEFT_FN bool operator()(T a, T b) const { return (a != T(0)) | (b != T(0)); }
};
struct Xor {
  template <class T> WEFT_FN bool operator()(T a, T b) const { return (a != T(0)) != (b != T(0)); }
};
struct IsFinite {
  template <class T> WEFT_FN bool operator()(T a) const { return a - a == T(0); }
};
struct IsInf {
  template <class T> WEFT_FN bool operator()(T a) const { return (a == a) & (a - a != T(0)); }
};
struct IsNan {
  template <class T> WEFT_FN bool operator()(T a) const { return a != a; }
};

template <class F> Op predicate(const char* name) {
  return truth_function<F, 1>(name, {{{{5, 7}}}, {.shapes = {{5, 7}}, .dtypes = {boolean}}});
}

template <class F> Op connective(const char* name) {
  return truth_function<F, 2>(name, {{.shapes = {{5, 7}, {5, 7}}, .dtypes = {boolean, boolean}},
                                     {.shapes = {{5, 7}, {7}}, .dtypes = {i64, i64}}});
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
Tensor isinf(const Tensor& a) { return isinf_op({a}); }
Tensor isnan(const Tensor& a) { return isnan_op({a}); }
Tensor logical_and(const Tensor& a, const Tensor& b) { return call_promoted(logical_and_op, a, b); }
Tensor logical_or(const Tensor& a, const Tensor& b) { return call_promoted(logical_or_op, a, b); }
Tensor logical_xor(const Tensor& a, const Tensor& b) { return call_promoted(logical_xor_op, a, b); }

namespace {

struct Equal {
  static constexpr bool kKeepsWidth = true;
  template <class T> WEFT_FN bool operator()(T a, T b) const { return a == b; }
};
struct NotEqual {
  static constexpr bool kKeepsWidth = true;
  template <class T> WEFT_FN bool operator()(T a, T b) const { return a != b; }
};
struct Less {
  static constexpr bool kKeepsWidth = true;
  static constexpr bool kDependsOnSign = true;
  template <class T> WEFT_FN bool operator()(T a, T b) const { return a < b; }
};
struct LessEqual {
  static constexpr bool kKeepsWidth = true;
  static constexpr bool kDependsOnSign = true;
  template <class T> WEFT_FN bool operator()(T a, T b) const { return a <= b; }
};
struct Where {
  template <class T> WEFT_FN T operator()(T condition, T a, T b) const {
    return condition != T(0) ? a : b;
  }
};
/// NaN if either operand is NaN.
struct Maximum {
  static constexpr bool kKeepsWidth = true;
  static constexpr bool kDependsOnSign = true;
  template <class T> WEFT_FN T operator()(T a, T b) const { return a > b || a != a ? a : b; }
};
struct Minimum {
  static constexpr bool kKeepsWidth = true;
  static constexpr bool kDependsOnSign = true;
  template <class T> WEFT_FN T operator()(T a, T b) const { return a < b || a != a ? a : b; }
};

template <class F> Op comparison(const char* name) {
  return truth_function<F, 2>(
      name, {{{{5, 7}, {5, 7}}}, {.shapes = {{5, 7}, {7}}, .dtypes = {i64, i64}}}, true);
}

/// Each operand gets half of the gradient where both are equal, as in PyTorch.
void give_extreme(const Grad& g) {
  for (int i : {0, 1}) {
    if (!g.wants(i)) continue;
    Tensor mine = cast(equal(g.in(i), g.out()), g.grad().dtype());
    Tensor both = cast(equal(g.in(0), g.in(1)), g.grad().dtype());
    g.give(i, mul(g.grad(), sub(mine, mul(both, 0.5))));
  }
}

template <class F> Op extreme(const char* name) {
  return elementwise<F, 2>({
      .name = name,
      .backward = give_extreme,
      .saves_out = {0},
      .samples = {{{{5, 7}, {5, 7}}}, {{{3, 5, 7}, {5, 1}}}},
  });
}

}  // namespace

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
    .saves_in = std::vector<int>{0},
    .samples = {{.shapes = {{5, 7}, {5, 7}, {5, 7}},
                 .dtypes = {DType::boolean, DType::f32, DType::f32}},
                {.shapes = {{7}, {5, 1}, {3, 5, 7}},
                 .dtypes = {DType::boolean, DType::f32, DType::f32}}},
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

}  // namespace weft

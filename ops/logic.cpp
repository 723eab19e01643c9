// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/logic.h"

#include "ops/functions.h"
#include "ops/promotion.h"

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

}  // namespace weft

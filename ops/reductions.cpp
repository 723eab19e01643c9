// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/reductions.h"

#include "ops/functions.h"
#include "ops/promotion.h"
#include "ops/reduced_dims.h"
#include "src/kernels/map/map.h"
#include "src/kernels/math/math.h"
#include "src/kernels/reduce/reduce.h"

namespace weft {

static Rule sum_rule(const Attributes& attributes, std::span<const Shape> shapes) {
  return reduction_rule(attributes, shapes, "", "");
}

/// Number of elements of the whole operand that one element of the result is reduced from.
static double reduced_count(const Attributes& attributes, const Shape& shape) {
  double count = 1;
  for (int d = 0; d < shape.ndim(); ++d) {
    if (is_reduced(attributes, d)) count *= static_cast<double>(shape[d]);
  }
  return count;
}

/// Returns the result's gradient, expanded to the operand's shape.
static Tensor spread(const Grad& g) {
  return expand(reshape(g.grad(), kept_shape(g.attributes(), g.in_shape(0))), g.in_shape(0));
}

static const Op sum_op = register_op({
    .name = "sum",
    .rule_of = sum_rule,
    .structure = set_of_dims(),
    .linear = {{0}},
    .dtype = [](const Attributes&, std::span<const DType> dtypes,
                int) { return total_dtype(dtypes[0]); },
    .forward =
        [](const Call& c) {
          reduce(Reduction::sum, c.out(), c.in(0), reduced_dims(c), 1, c.accumulate());
        },
    .backward = [](const Grad& g) { g.give(0, spread(g)); },
    .saves_in = std::vector<int>{},
    .accumulates = {0},
    .samples = {{.shapes = {{5, 7}}, .attributes = {.structure = {1}}},
                {.shapes = {{5, 3, 7}}, .attributes = {.structure = {5}}},
                {.shapes = {{5, 7}}, .attributes = {.structure = {3}}},
                {.shapes = {{5, 7}}, .attributes = {.structure = {2}}, .dtypes = {i32}}},
});

static const Op mean_op = register_op({
    .name = "mean",
    .rule_of = sum_rule,
    .structure = set_of_dims(),
    .linear = {{0}},
    .forward =
        [](const Call& c) {
          reduce(Reduction::sum, c.out(), c.in(0), reduced_dims(c),
                 1 / reduced_count(c.attributes(), c.in_shape(0)), c.accumulate());
        },
    .backward =
        [](const Grad& g) {
          g.give(0, mul(spread(g), 1 / reduced_count(g.attributes(), g.in_shape(0))));
        },
    .saves_in = std::vector<int>{},
    .accumulates = {0},
    .samples = {{.shapes = {{5, 7}}, .attributes = {.structure = {1}}},
                {.shapes = {{5, 3, 7}}, .attributes = {.structure = {6}}},
                {.shapes = {{5, 7}}, .attributes = {.structure = {3}}}},
});

static const Op nansum_op = register_op({
    .name = "nansum",
    .rule_of = sum_rule,
    .structure = set_of_dims(),
    .forward =
        [](const Call& c) {
          reduce(Reduction::sum_numbers, c.out(), c.in(0), reduced_dims(c), 1, c.accumulate());
        },
    .backward = [](const Grad& g) { g.give(0, masked_fill(spread(g), isnan(g.in(0)), 0)); },
    .accumulates = {0},
    .samples = {{.shapes = {{5, 7}}, .attributes = {.structure = {1}}},
                {.shapes = {{5, 3, 7}}, .attributes = {.structure = {5}}}},
});

/// Equal extremes share the gradient evenly, as in torch.amax.
static void give_to_extremes(const Grad& g) {
  const Shape kept = kept_shape(g.attributes(), g.in_shape(0));
  std::vector<int> dims;
  for (int d = 0; d < kept.ndim(); ++d) {
    if (is_reduced(g.attributes(), d)) dims.push_back(d);
  }
  Tensor extreme = cast(equal(g.in(0), reshape(g.out(), kept)), g.grad().dtype());
  Tensor share = dims.empty() ? g.grad() : div(g.grad(), sum(extreme, dims));
  g.give(0, mul(extreme, reshape(share, kept)));
}

static Op extreme_reduction(const char* name, Reduction reduction, const char* mark) {
  OpSpec spec = marked_reduction(name, reduction, mark);
  spec.backward = give_to_extremes;
  spec.saves_out = {0};
  spec.samples = {{.shapes = {{5, 7}}, .attributes = {.structure = {1}}},
                  {.shapes = {{5, 3, 7}}, .attributes = {.structure = {6}}},
                  {.shapes = {{5, 7}}, .attributes = {.structure = {3}}, .dtypes = {i64}},
                  {.shapes = {{3, 5}}, .attributes = {.structure = {1}}, .dtypes = {i32}}};
  return register_op(std::move(spec));
}

static const Op max_op = extreme_reduction("max", Reduction::max, ":max");
static const Op min_op = extreme_reduction("min", Reduction::min, ":min");

static const Op sum_squares_op = register_op({
    .name = "sum_squares",
    .rule_of = sum_rule,
    .structure = set_of_dims(),
    .dtype = [](const Attributes&, std::span<const DType> dtypes,
                int) { return dtypes[0] == f64 ? f64 : f32; },
    .forward =
        [](const Call& c) {
          reduce(Reduction::sum_squares, c.out(), c.in(0), reduced_dims(c), 1, c.accumulate());
        },
    .backward =
        [](const Grad& g) {
          Tensor doubled = cast(mul(g.grad(), 2), g.in_dtype(0));
          g.give(0, mul(g.in(0), reshape(doubled, kept_shape(g.attributes(), g.in_shape(0)))));
        },
    .accumulates = {0},
    .samples = {{.shapes = {{5, 7}}, .attributes = {.structure = {1}}},
                {.shapes = {{5, 3, 7}}, .attributes = {.structure = {7}}},
                {.shapes = {{7}}, .attributes = {.structure = {1}}}},
});

namespace {

struct Root {
  template <class T> WEFT_FN T operator()(T x) const { return sqrt(x); }
};
/// dy / (2 y); 0 at 0, where the norm has no gradient (torch.linalg.vector_norm gives 0 too).
struct RootGradient {
  template <class T> WEFT_FN T operator()(T dy, T y) const {
    return y == T(0) ? T(0) : dy / (T(2) * y);
  }
};

}  // namespace

static const Op norm_root_gradient_op = gradient_of<RootGradient>("norm_root_gradient");
/// The square root of a sum of squares.
static const Op norm_root_op = floating_function<Root>({.name = "norm_root",
                                                        .by_result =
                                                            [](auto& dy, auto& y) {
                                                              return norm_root_gradient_op({dy, y});
                                                            },
                                                        .low = 0.1});

Tensor sum(const Tensor& a, const std::vector<int>& dims, bool keepdims) {
  return reduced(sum_op, reduced_before_widening(a), bits_of_dims("sum", a, dims), keepdims);
}

Tensor nansum(const Tensor& a, const std::vector<int>& dims, bool keepdims) {
  if (a && !is_floating(a.dtype())) return sum(a, dims, keepdims);
  return reduced(nansum_op, a, bits_of_dims("nansum", a, dims), keepdims);
}

Tensor mean(const Tensor& a, const std::vector<int>& dims, bool keepdims) {
  int64_t bits = bits_of_dims("mean", a, dims);
  return reduced(mean_op, as_floating("mean", a), bits, keepdims);
}

static Tensor extreme_of(const Op& op, const Tensor& a, const std::vector<int>& dims,
                         bool keepdims) {
  const char* what = op.spec().name.c_str();
  int64_t bits = bits_of_dims(what, a, dims);
  for (int d = 0; d < a.ndim(); ++d) {
    if (bits >> d & 1 && a.size(d) == 0) {
      fail(what, ": size of dim ", d, " of ", a.shape(), " must be at least 1, got 0");
    }
  }
  return ordered_back(reduced(op, ordered_as_i64(a), bits, keepdims), a.dtype());
}

Tensor max(const Tensor& a, const std::vector<int>& dims, bool keepdims) {
  return extreme_of(max_op, a, dims, keepdims);
}

Tensor min(const Tensor& a, const std::vector<int>& dims, bool keepdims) {
  return extreme_of(min_op, a, dims, keepdims);
}

Tensor sum_squares(const Tensor& a, const std::vector<int>& dims, bool keepdims) {
  int64_t bits = bits_of_dims("sum_squares", a, dims);
  return reduced(sum_squares_op, as_floating("sum_squares", a), bits, keepdims);
}

Tensor norm(const Tensor& a, const std::vector<int>& dims, bool keepdims) {
  Tensor x = as_floating("norm", a);
  return as_dtype(norm_root_op({sum_squares(x, dims, keepdims)}), x.dtype());
}

/// Registers a reduction of truth values as 0 and 1: `any` is their maximum, `all` their minimum,
/// which ranks can reduce.
static Op truth_reduction(const char* name, Reduction reduction, const char* mark) {
  OpSpec spec = marked_reduction(name, reduction, mark);
  spec.dtype = bool_result;
  spec.differentiable = false;
  spec.samples = {{.shapes = {{5, 7}}, .attributes = {.structure = {1}}, .dtypes = {boolean}},
                  {.shapes = {{5, 3, 2}}, .attributes = {.structure = {6}}, .dtypes = {boolean}},
                  {.shapes = {{2, 1}}, .attributes = {.structure = {3}}, .dtypes = {i64}},
                  {.shapes = {{5, 2}}, .attributes = {.structure = {2}}}};
  return register_op(std::move(spec));
}

static const Op all_op = truth_reduction("all", Reduction::all, ":min");
static const Op any_op = truth_reduction("any", Reduction::any, ":max");

Tensor all(const Tensor& a, const std::vector<int>& dims, bool keepdims) {
  return reduced(all_op, a, bits_of_dims("all", a, dims), keepdims);
}

Tensor any(const Tensor& a, const std::vector<int>& dims, bool keepdims) {
  return reduced(any_op, a, bits_of_dims("any", a, dims), keepdims);
}

}  // namespace weft

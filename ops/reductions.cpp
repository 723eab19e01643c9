// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/reductions.h"

#include "ops/complex.h"
#include "ops/dims.h"
#include "ops/functions.h"
#include "ops/halves.h"
#include "ops/promotion.h"
#include "ops/rows.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/math/math.h"
#include "src/kernels/reduce/reduce.h"
#include "weft/ops/along_dim.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"
#include "weft/ops/shapes.h"

namespace weft {

// The only structural attribute is the set of reduced dims, as bits; results lack these dims.

static Dims reduced_dims(const Call& c) {
  Dims dims;
  for (int d = 0; d < c.in(0).shape.ndim(); ++d) {
    if (has_dim(c.attributes(), d)) dims.push_back(d);
  }
  return dims;
}

/// Returns `shape` with size 1 at the reduced dims.
static Shape kept_shape(const Attributes& attributes, Shape shape) {
  for (int d = 0; d < shape.ndim(); ++d) {
    if (has_dim(attributes, d)) shape[d] = 1;
  }
  return shape;
}

static Tensor reduced(const Op& op, const Tensor& a, const std::vector<int>& dims, bool keepdims) {
  const Attributes attributes{.structure = {bits_of_dims(op.spec().name.c_str(), a, dims)}};
  Tensor result = op({a}, attributes);
  return keepdims ? reshape(result, kept_shape(attributes, a.shape())) : result;
}

/// Number of elements of the whole operand that one element of the result is reduced from.
static double reduced_count(const Attributes& attributes, const Shape& shape) {
  double count = 1;
  for (int d = 0; d < shape.ndim(); ++d) {
    if (has_dim(attributes, d)) count *= static_cast<double>(shape[d]);
  }
  return count;
}

/// Returns the result's gradient, expanded to the operand's shape.
static Tensor spread(const Grad& g) {
  return expand(reshape(g.grad(), kept_shape(g.attributes(), g.in_shape(0))), g.in_shape(0));
}

/// The marks of reduced dims in a rule. There is no Partial product: its dims are never sharded.
static std::pair<const char*, const char*> marks_of(Reduction kind) {
  if (kind == Reduction::product) return {"[", "]"};
  if (kind == Reduction::max || kind == Reduction::any) return {"", ":max"};
  return {"", kind == Reduction::min || kind == Reduction::all ? ":min" : ""};
}

/// Registers a reduction, or a mean; adds rule, structure and forward to `spec`.
template <Reduction kKind, bool kAverages = false> static Op register_reduction(OpSpec spec) {
  spec.rule_of = [](const Attributes& attributes, std::span<const Shape> shapes) {
    const auto [before, after] = marks_of(kKind);
    std::string in, out;
    for (int d = 0; d < shapes[0].ndim(); ++d) {
      const bool reduced = has_dim(attributes, d);
      in += concat(reduced ? before : "", dim_name(d), reduced ? after : "", " ");
      if (!reduced) out += concat(dim_name(d), " ");
    }
    return Rule{array_text(in) + " -> " + array_text(out)};
  };
  spec.structure = set_of_dims();
  spec.forward = [](const Call& c) {
    const double count = kAverages ? reduced_count(c.attributes(), c.in_shape(0)) : 1;
    // The tokens of a row: of [batch, tokens] or [batch, tokens, width].
    const int dim = std::max(1, c.in(0).shape.ndim() - 2);
    const bool adds = kKind == Reduction::sum && c.in(0).shape.ndim() >= 2 &&
                      has_dim(c.attributes(), 0) && has_dim(c.attributes(), dim);
    const int64_t half = adds ? half_of(c, 0, dim) : 0;
    add_by_halves(c.out(), c.accumulate(), half, half == 0 ? 0 : c.in(0).shape[dim],
                  [&](int64_t begin, int64_t end, const MemoryBlock& to, bool accumulates) {
                    reduce(kKind, to, half == 0 ? c.in(0) : range_of(c.in(0), dim, begin, end),
                           reduced_dims(c), 1 / count, accumulates);
                  });
  };
  return register_op(std::move(spec));
}

static const Op sum_op = register_reduction<Reduction::sum>({
    .name = "sum",
    .complex = true,
    .linear = {{0}},
    .dtype = dtype_of_total,
    .backward = [](const Grad& g) { g.give(0, spread(g)); },
    .accumulates = {0},
    .samples = {sample_with({{5, 7}}, {1}), sample_with({{5, 3, 7}}, {5}),
                sample_with({{5, 7}}, {3}), sample_with({{5, 7}}, {2}, {i32})},
});

static const Op mean_op = register_reduction<Reduction::sum, true>({
    .name = "mean",
    .complex = true,
    .linear = {{0}},
    .backward =
        [](const Grad& g) {
          g.give(0, mul(spread(g), 1 / reduced_count(g.attributes(), g.in_shape(0))));
        },
    .accumulates = {0},
    .samples = {sample_with({{5, 7}}, {1}), sample_with({{5, 3, 7}}, {6}),
                sample_with({{5, 7}}, {3})},
});

static const Op nansum_op = register_reduction<Reduction::sum_numbers>({
    .name = "nansum",
    .backward = [](const Grad& g) { g.give(0, masked_fill(spread(g), isnan(g.in(0)), 0)); },
    .accumulates = {0},
    .samples = {sample_with({{5, 7}}, {1}), sample_with({{5, 3, 7}}, {5})},
});

/// Equal extremes share the gradient evenly, as in torch.amax. Selects instead of multiplying by 0,
/// as the gradient may be infinite; where the extreme is NaN, so are all gradients.
static void give_to_extremes(const Grad& g) {
  const Shape kept = kept_shape(g.attributes(), g.in_shape(0));
  const Tensor is_extreme = equal(g.in(0), reshape(g.out(), kept));
  if (g.attribute(0) == 0) {
    return g.give(0, where(is_extreme, g.grad(), number_like(g.grad(), 0)));
  }
  const Tensor count = sum_op({cast(is_extreme, g.grad().dtype())}, g.attributes());
  const Tensor share = div(g.grad(), count), others = div(0, count);
  g.give(0, where(is_extreme, reshape(share, kept), reshape(others, kept)));
}

template <Reduction kKind> static Op extreme_reduction(const char* name) {
  return register_reduction<kKind>({
      .name = name,
      .backward = give_to_extremes,
      .saves_out = {0},
      .samples = {sample_with({{5, 7}}, {1}), sample_with({{5, 3, 7}}, {6}),
                  sample_with({{5, 7}}, {3}, {i64}), sample_with({{3, 5}}, {1}, {i32})},
  });
}

static const Op max_op = extreme_reduction<Reduction::max>("max");
static const Op min_op = extreme_reduction<Reduction::min>("min");

static const Op sum_squares_op = register_reduction<Reduction::sum_squares>({
    .name = "sum_squares",
    .dtype = row_dtype,
    .backward =
        [](const Grad& g) {
          Tensor doubled = cast(mul(g.grad(), 2), g.in_dtype(0));
          g.give(0, mul(g.in(0), reshape(doubled, kept_shape(g.attributes(), g.in_shape(0)))));
        },
    .accumulates = {0},
    .samples = {sample_with({{5, 7}}, {1}), sample_with({{5, 3, 7}}, {7}), sample_with({{7}}, {1})},
});

namespace {

WEFT_FUNCTOR(Root, sqrt)
}  // namespace

/// The square root of a sum of squares. Its gradient is dy / (2 y), but 0 at 0, as that of
/// torch.linalg.vector_norm.
static const Op norm_root_op = function<Root>(
    "norm_root",
    {.by_result = [](auto& dy, auto& y) { return masked_fill(div(dy, mul(y, 2)), equal(y, 0), 0); },
     .range = {0.1, 2}});

Tensor sum(const Tensor& a, const std::vector<int>& dims, bool keepdims) {
  return reduced(sum_op, reduced_before_widening(a), dims, keepdims);
}

Tensor nansum(const Tensor& a, const std::vector<int>& dims, bool keepdims) {
  if (a && !is_floating(a.dtype())) return sum(a, dims, keepdims);
  return reduced(nansum_op, a, dims, keepdims);
}

Tensor mean(const Tensor& a, const std::vector<int>& dims, bool keepdims) {
  return reduced(mean_op, as_floating("mean", a), dims, keepdims);
}

static Tensor extreme_of(const Op& op, const Tensor& a, const std::vector<int>& dims,
                         bool keepdims) {
  const char* what = op.spec().name.c_str();
  const int64_t bits = bits_of_dims(what, a, dims);
  for (int d = 0; d < a.ndim(); ++d) {
    if (bits >> d & 1) filled_dim(what, a, d);
  }
  return ordered_back(reduced(op, ordered_as_i64(a), dims, keepdims), a.dtype());
}

Tensor max(const Tensor& a, const std::vector<int>& dims, bool keepdims) {
  return extreme_of(max_op, a, dims, keepdims);
}

Tensor min(const Tensor& a, const std::vector<int>& dims, bool keepdims) {
  return extreme_of(min_op, a, dims, keepdims);
}

Tensor sum_squares(const Tensor& a, const std::vector<int>& dims, bool keepdims) {
  if (is_complex(a)) return sum(squared_magnitude(a), dims, keepdims);
  return reduced(sum_squares_op, as_floating("sum_squares", a), dims, keepdims);
}

Tensor norm(const Tensor& a, const std::vector<int>& dims, bool keepdims) {
  if (is_complex(a)) return norm(abs(a), dims, keepdims);
  Tensor x = as_floating("norm", a);
  return as_dtype(norm_root_op({sum_squares(x, dims, keepdims)}), x.dtype());
}

/// Registers a reduction of truth values as 0 and 1: `any` is their maximum, `all` their minimum,
/// which ranks can reduce.
template <Reduction kKind> static Op truth_reduction(const char* name) {
  return register_reduction<kKind>({
      .name = name,
      .dtype = bool_result,
      .differentiable = false,
      .samples = {sample_with({{5, 7}}, {1}, {boolean}), sample_with({{5, 3, 2}}, {6}, {boolean}),
                  sample_with({{2, 1}}, {3}, {i64}), sample_with({{5, 2}}, {2})},
  });
}

static const Op all_op = truth_reduction<Reduction::all>("all");
static const Op any_op = truth_reduction<Reduction::any>("any");

Tensor all(const Tensor& a, const std::vector<int>& dims, bool keepdims) {
  return reduced(all_op, is_complex(a) ? not_equal(a, 0) : a, dims, keepdims);
}

Tensor any(const Tensor& a, const std::vector<int>& dims, bool keepdims) {
  return reduced(any_op, is_complex(a) ? not_equal(a, 0) : a, dims, keepdims);
}

/// The gradient of a factor is dy times the product of those before it and of those behind it.
/// Joins the reduced dims at the end.
static void give_products_of_others(const Grad& g) {
  std::vector<int> order;
  for (const bool is_reduced : {false, true}) {
    for (int d = 0; d < g.in_shape(0).ndim(); ++d) {
      if (has_dim(g.attributes(), d) == is_reduced) order.push_back(d);
    }
  }
  const auto count = static_cast<int64_t>(reduced_count(g.attributes(), g.in_shape(0)));
  Shape rows = g.grad().shape();
  rows.push_back(count);
  const Tensor turned = permute(g.in(0), order);
  const Tensor factors = as_dtype(reshape(turned, rows), DType::f64);
  const auto before = [&](const Tensor& x) {
    return slice(cumulative_prod(x, -1, true), -1, 0, count);
  };
  const Tensor dy = unsqueeze(as_dtype(g.grad(), DType::f64), -1);
  const Tensor gradient = mul(mul(dy, before(factors)), flip(before(flip(factors, {-1})), {-1}));
  g.give(0, as_dtype(permute(reshape(gradient, turned.shape()), inverse_of(order)), g.in_dtype(0)));
}

static const Op prod_op = register_reduction<Reduction::product>({
    .name = "prod",
    .dtype = dtype_of_total,
    .backward = give_products_of_others,
    .samples = {sample_with({{5, 7}}, {1}, {}, -1.5, 1.5),
                sample_with({{5, 3, 2}}, {5}, {}, 0.5, 1.5), sample_with({{2, 3}}, {3}),
                sample_with({{5, 7}}, {2}, {i32})},
});

/// Multiplies the halves of a dim until one element is left, dim by dim: log2(n) products.
static Tensor complex_prod(const Tensor& a, const std::vector<int>& dims, bool keepdims) {
  const int64_t bits = bits_of_dims("prod", a, dims);
  Tensor x = a;
  for (int d = 0; d < a.ndim(); ++d) {
    if ((bits >> d & 1) == 0) continue;
    if (x.size(d) == 0) {
      x = ones_like(sum(x, {d}, true));
      continue;
    }
    while (x.size(d) > 1) {
      const int64_t half = x.size(d) / 2;
      const Tensor product = mul(slice(x, d, 0, half), slice(x, d, half, 2 * half));
      x = x.size(d) % 2 == 0 ? product : cat({product, slice(x, d, 2 * half, x.size(d))}, d);
    }
  }
  const Attributes attributes{.structure = {bits}};
  Shape shape;
  for (int d = 0; d < a.ndim(); ++d) {
    if (!has_dim(attributes, d)) shape.push_back(a.size(d));
  }
  return keepdims ? x : reshape(x, shape);
}

Tensor prod(const Tensor& a, const std::vector<int>& dims, bool keepdims) {
  if (is_complex(a)) return complex_prod(a, dims, keepdims);
  return reduced(prod_op, a, dims, keepdims);
}

/// Finds, for a sharded dim, the least index in the whole tensor at which the extreme occurs.
static Stage first_index_stage() {
  return {.result = "...",
          .reduce = ReduceOp::min,
          .run =
              [](const Call& c) {
                int dim = last_dim(c);
                index_of(c.stage(1), c.in(0), c.stage(0), dim, c.in_box(0).offset[dim]);
              },
          .index = true};
}

static Op arg_reduction(const char* name, bool greatest) {
  return register_op({
      .name = name,
      .rule = "... v -> ...",
      .dtype = [](const Attributes&, std::span<const DType>, int) { return i64; },
      .forward =
          [greatest](const Call& c) {
            if (c.staged()) return copy(c.out(), c.stage(1));
            arg_reduce(c.out(), c.in(0), last_dim(c), greatest);
          },
      .staged_over = {"v"},
      .stages = {row_extreme_stage(greatest), first_index_stage()},
      .differentiable = false,
      .samples = {{{{5, 7}}}, {{{2, 5, 3}}}, {.shapes = {{5, 7}}, .dtypes = {i32}}},
  });
}

static const Op argmax_op = arg_reduction("argmax", true);
static const Op argmin_op = arg_reduction("argmin", false);

static Tensor index_along(const Op& op, const Tensor& a, int dim, bool keepdims) {
  const int at = filled_dim(op.spec().name.c_str(), a, dim);
  Tensor index = op({with_last(ordered_as_i64(a), at)});
  return keepdims ? unsqueeze(index, at) : index;
}

Tensor argmax(const Tensor& a, int dim, bool keepdims) {
  return index_along(argmax_op, a, dim, keepdims);
}

Tensor argmin(const Tensor& a, int dim, bool keepdims) {
  return index_along(argmin_op, a, dim, keepdims);
}

}  // namespace weft

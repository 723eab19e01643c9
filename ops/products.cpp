// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <utility>

#include "ops/engine/call_watch.h"
#include "ops/engine/engine.h"
#include "ops/engine/tensor_body.h"
#include "ops/halves.h"
#include "ops/moved_parts.h"
#include "ops/promotion.h"
#include "src/kernels/kernel.h"
#include "src/kernels/matmul/gemm.h"
#include "src/kernels/reduce/reduce.h"
#include "weft/ops.h"

namespace weft {

static double one_product(const Attributes&) { return 1; }

static float beta_of(const Call& c) { return c.accumulate() ? 1.0f : 0.0f; }

/// Computes the call's result from operand 0 by `product(a, out)`, in parts if the rank splits its
/// products.
template <class Product> static void multiply_rows(const Call& c, const Product& product) {
  ProductParts* parts = ProductParts::current();
  parts ? parts->compute(c.in(0), c.out(), product) : product(c.in(0), c.out());
}

/// out = a [..., k] by b [k, n], and the bias: contracts the halves [0, half) and [half, k) of k
/// one after the other, unless `half` is 0.
static void gemm_by_halves(const MemoryBlock& a, const MemoryBlock& b, const MemoryBlock& out,
                           float beta, const MemoryBlock* bias, int64_t half) {
  const int of_a = a.shape.ndim() - 1, of_b = b.shape.ndim() - 2;
  if (half == 0) return gemm(a, b, out, beta, bias);
  add_by_halves(out, beta != 0, half, b.shape[of_b],
                [&](int64_t begin, int64_t end, const MemoryBlock& to, bool) {
                  gemm(range_of(a, of_a, begin, end), range_of(b, of_b, begin, end), to, 0,
                       begin == 0 ? bias : nullptr);
                });
}

/// The gradient of a linear layer's weight: contracts over all leading dims at once, instead of a
/// batched product and a sum.
static const Op linear_weight_gradient_op = register_op({
    .name = "linear_weight_gradient",
    .rule = "... n, ... k -> n k",
    .complex = true,
    .linear = {{0}, {1}},
    .forward =
        [](const Call& c) {
          // The tokens of a row.
          const int dim = c.in(0).shape.ndim() - 2;
          const int64_t half = dim < 1 ? 0 : half_of(c, 0, dim);
          if (dim < 1) return gemm_over_leading(c.in(0), c.in(1), c.out(), beta_of(c));
          add_by_halves(c.out(), c.accumulate(), half, c.in(0).shape[dim],
                        [&](int64_t begin, int64_t end, const MemoryBlock& to, bool accumulate) {
                          gemm_over_leading(range_of(c.in(0), dim, begin, end),
                                            range_of(c.in(1), dim, begin, end), to, accumulate);
                        });
        },
    .backward = give_each({[](auto& g) { return linear(conj(g.in(1)), g.grad()); },
                           [](auto& g) { return matmul(conj(g.in(0)), g.grad()); }}),
    .accumulates = {0},
    .products = one_product,
    .samples = {{{{5, 7}, {5, 3}}}, {{{2, 5, 7}, {2, 5, 3}}}},
});

static const Op matmul_op = register_op({
    .name = "matmul",
    .rule = "... m k, ... k n -> ... m n",
    .complex = true,
    .linear = {{0}, {1}},
    .forward =
        [](const Call& c) {
          const int64_t half = c.in(1).shape.ndim() == 2 ? half_of(c, 1, 0) : 0;
          multiply_rows(c, [&](const MemoryBlock& a, const MemoryBlock& out) {
            gemm_by_halves(a, c.in(1), out, beta_of(c), nullptr, half);
          });
        },
    .backward =
        [](const Grad& g) {
          if (g.wants(0)) g.give(0, matmul(g.grad(), transpose(conj(g.in(1)), -2, -1)));
          if (!g.wants(1)) return;
          // A matrix that all leading dims of the left factor share is contracted over them.
          if (g.in_shape(1).ndim() > 2)
            return g.give(1, matmul(transpose(conj(g.in(0)), -2, -1), g.grad()));
          const Tensor left = conj(g.in(0));
          g.give(1, linear_weight_gradient_op, {left, g.grad()});
        },
    .accumulates = {0},
    .products = one_product,
    .samples = {{{{5, 7}, {7, 3}}},
                {{{2, 5, 7}, {2, 7, 3}}},
                {{{2, 5, 7}, {7, 3}}},
                {.shapes = {{5, 7}, {7, 3}}, .dtypes = {i64, i64}, .low = -9, .high = 9}},
});

/// operands: x, weight and, if given, bias.
static Op register_linear(const char* name, RuleLiteral rule, std::vector<std::vector<int>> linear,
                          std::vector<OpSample> samples) {
  return register_op({
      .name = name,
      .rule = rule,
      .linear = std::move(linear),
      .forward =
          [](const Call& c) {
            const MemoryBlock weight = transposed(c.in(1));
            multiply_rows(c, [&](const MemoryBlock& x, const MemoryBlock& out) {
              gemm_by_halves(x, weight, out, beta_of(c), c.operands() > 2 ? &c.in(2) : nullptr,
                             half_of(c, 1, 1));
            });
          },
      .backward =
          [](const Grad& g) {
            if (g.wants(1)) g.give(1, linear_weight_gradient_op, {g.grad(), g.in(0)});
            if (g.wants(0)) g.give(0, matmul(g.grad(), g.in(1)));
            if (g.operands() > 2) g.give(2, g.grad());
          },
      .accumulates = {0},
      .products = one_product,
      .samples = std::move(samples),
  });
}

static const Op linear_op = register_linear("linear", "... k, n k -> ... n", {{0}, {1}},
                                            {{{{5, 7}, {3, 7}}}, {{{2, 5, 7}, {3, 7}}}});
static const Op linear_bias_op =
    register_linear("linear_bias", "... k, n k, n -> ... n", {{0, 2}, {1, 2}},
                    {{{{5, 7}, {3, 7}, {3}}}, {{{2, 5, 7}, {3, 7}, {3}}}});

const Op& matmul_product() { return matmul_op; }

Tensor matmul(const Tensor& a, const Tensor& b) {
  const bool truths = a && b && a.dtype() == boolean && b.dtype() == boolean;
  if (truths) return cast(matmul(cast(a, i32), cast(b, i32)), boolean);
  return call_promoted(matmul_op, a, b);
}

/// True when one of the operands is complex: the ops of linear layers are real.
static bool any_complex(const Tensor& x, const Tensor& weight) {
  return (x && is_complex(x.dtype())) || (weight && is_complex(weight.dtype()));
}

Tensor linear(const Tensor& x, const Tensor& weight) {
  if (any_complex(x, weight)) return matmul(x, transpose(weight, -2, -1));
  return call_promoted(linear_op, x, weight);
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (!x || !weight || !bias) fail("linear: no tensor is given, expected one");
  if (any_complex(x, weight)) return add(linear(x, weight), bias);
  DType dtype = promote(promote(x.dtype(), weight.dtype()), bias.dtype());
  return linear_bias_op({as_dtype(x, dtype), as_dtype(weight, dtype), as_dtype(bias, dtype)});
}

WEFT_STATIC_TLS static thread_local ProductParts* current_parts = nullptr;

ProductParts::ProductParts(const RowParts& rows, Before before, After after)
    : rows_(rows),
      before_(std::move(before)),
      after_(std::move(after)),
      outer_(std::exchange(current_parts, this)) {}

ProductParts::~ProductParts() { current_parts = outer_; }

ProductParts* ProductParts::current() { return current_parts; }

void ProductParts::compute(
    const MemoryBlock& a, const MemoryBlock& out,
    const std::function<void(const MemoryBlock&, const MemoryBlock&)>& product) {
  for (int part = 0; part < rows_.count(); ++part) {
    if (before_) before_(part);
    rows_.for_blocks(part, a, out, product);
    end_part(part, out);
  }
}

void ProductParts::skip(Device device) {
  if (device.kind != DeviceKind::meta) return;
  for (int part = 0; part < rows_.count(); ++part) {
    if (before_) before_(part);
    end_part(part, MemoryBlock{nullptr, f32, device, {}, {}});
  }
}

void ProductParts::end_part(int part, const MemoryBlock& out) {
  if (CallWatch* watch = Engine::current().watch) watch->part_computed(part);
  if (after_) after_(part, out);
}

/// Makes a matrix whose rows are dims `first`, in that order, and whose columns are dims `last`.
static Tensor as_matrix(const Tensor& a, const std::vector<int>& first,
                        const std::vector<int>& last) {
  std::vector<int> order = first;
  order.insert(order.end(), last.begin(), last.end());
  int64_t rows = 1, columns = 1;
  for (const int dim : first) rows *= a.size(dim);
  for (const int dim : last) columns *= a.size(dim);
  return reshape(permute(a, order), {rows, columns});
}

/// Normalizes `dims` and returns the dims that it does not name.
static std::vector<int> other_dims(const Tensor& a, std::vector<int>& dims) {
  for (int& dim : dims) dim = normalized_dim("tensordot", dim, a.ndim());
  std::vector<int> others;
  for (int d = 0; d < a.ndim(); ++d) {
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) others.push_back(d);
  }
  return others;
}

Tensor tensordot(const Tensor& a, const Tensor& b, const std::vector<int>& dims_of_a,
                 const std::vector<int>& dims_of_b) {
  check_tensor("tensordot", a, b);
  if (dims_of_a.size() != dims_of_b.size()) {
    fail("tensordot: dims of operand 1 are ", dims_of_b.size(), ", expected ", dims_of_a.size(),
         " as of operand 0");
  }
  std::vector<int> first = dims_of_a, second = dims_of_b;
  const std::vector<int> kept_a = other_dims(a, first), kept_b = other_dims(b, second);
  for (size_t i = 0; i < first.size(); ++i) {
    if (a.size(first[i]) == b.size(second[i])) continue;
    fail("tensordot: dim ", second[i], " of ", b.shape(), " is ", b.size(second[i]), ", expected ",
         a.size(first[i]), " as dim ", first[i], " of ", a.shape());
  }
  Shape shape;
  for (const int dim : kept_a) shape.push_back(a.size(dim));
  for (const int dim : kept_b) shape.push_back(b.size(dim));
  return reshape(matmul(as_matrix(a, kept_a, first), as_matrix(b, second, kept_b)), shape);
}

Tensor tensordot(const Tensor& a, const Tensor& b, int count) {
  check_tensor("tensordot", a, b);
  if (count < 0 || count > std::min(a.ndim(), b.ndim())) {
    fail("tensordot: the number of dims is ", count, ", expected 0 to those of ", a.shape(),
         " and ", b.shape());
  }
  std::vector<int> first(static_cast<size_t>(count)), second(first);
  std::iota(first.begin(), first.end(), a.ndim() - count);
  std::iota(second.begin(), second.end(), 0);
  return tensordot(a, b, first, second);
}

/// Returns `dim` counted from the end.
static int dim_from_end(const char* what, const Tensor& a, const Tensor& b, int dim) {
  check_tensor(what, a, b);
  const int at = dim >= 0 && a.ndim() == b.ndim() ? dim - a.ndim() : dim;
  if (at >= 0 || at < -std::min(a.ndim(), b.ndim())) {
    fail(what, ": dim is ", dim, ", expected one of ", a.shape(), " and ", b.shape(),
         ", counted from the end");
  }
  return at;
}

/// The products of two tensors, added along the last dim.
static const Op dot_op = register_op({
    .name = "dot_rows",
    .rule = "... n, ... n -> ...",
    .takes = {{.dtypes = {f32, DType::f64}}, {.dtypes = {f32, DType::f64}}},
    .linear = {{0}, {1}},
    .forward = [](const Call& c) { dot_rows(c.out(), c.in(0), c.in(1)); },
    .backward =
        [](const Grad& g) {
          const Tensor each = unsqueeze(g.grad(), -1);
          if (g.wants(0)) g.give(0, mul(each, g.in(1)));
          if (g.wants(1)) g.give(1, mul(each, g.in(0)));
        },
    .samples = {{.shapes = {{5, 7}, {5, 7}}}, {.shapes = {{6}, {6}}}},
});

Tensor vecdot(const Tensor& a, const Tensor& b, int dim) {
  const int at = dim_from_end("vecdot", a, b, dim);
  if (a.size(at) != b.size(at)) {
    fail("vecdot: dim ", at, " of ", b.shape(), " is ", b.size(at), ", expected ", a.size(at),
         " as of ", a.shape());
  }
  const DType dtype = promote(a.dtype(), b.dtype());
  const bool is_half = dtype == DType::bf16 || dtype == DType::f16;
  const bool is_wide = dtype == f32 || dtype == DType::f64;
  if (is_wide && a.dtype() == b.dtype() && a.shape() == b.shape() && at == -1) {
    return dot_op({a, b});
  }
  const Tensor product = is_half ? mul(cast(a, DType::f32), cast(b, DType::f32)) : mul(conj(a), b);
  return cast(sum(product, {at}), dtype);
}

Tensor outer(const Tensor& a, const Tensor& b) {
  for (const Tensor& x : {a, b}) {
    check_tensor("outer", x);
    if (x.ndim() != 1) fail("outer: the tensor is ", x.shape(), ", expected one dim");
  }
  return mul(unsqueeze(a, 1), b);
}

Tensor cross(const Tensor& a, const Tensor& b, int dim) {
  const int at = dim_from_end("cross", a, b, dim);
  for (const Tensor& x : {a, b}) {
    if (x.size(at) != 3)
      fail("cross: dim ", at, " of ", x.shape(), " is ", x.size(at), ", expected 3");
  }
  Tensors parts;
  for (const int i : {1, 2, 0}) {
    const int j = (i + 1) % 3;
    const auto part = [at](const Tensor& x, int k) { return slice(x, at, k, k + 1); };
    parts.push_back(sub(mul(part(a, i), part(b, j)), mul(part(a, j), part(b, i))));
  }
  return cat(parts, at);
}

Tensor trace(const Tensor& a, int64_t offset) { return sum(diagonal(a, offset), {-1}); }

/// The greatest magnitude in the whole tensor, as an f32 scalar on each rank.
static Tensor greatest_magnitude(const Tensor& a) {
  const NoGrad no_grad;
  const Tensor values = a.detach();
  const TensorOptions options = options_next_to(a, DType::f32);
  if (a.numel() == 0) return zeros({}, options);
  const Tensor greatest = as_dtype(max(abs(values)), DType::f32);
  return a.is_sharded() ? redistributed(greatest, options.sharding) : greatest;
}

/// Makes an op that is not among all_ops(), whose gradients are checked by differences.
static Op product_op(const char* name, RuleLiteral rule, LinearProduct product,
                     void (*backward)(const Grad&) = nullptr) {
  return Op({.name = name,
             .rule = rule,
             .takes = {anything()},
             .positions = std::vector<std::string>(),
             .forward =
                 [product](const Call& c) {
                   float8_product(product, c.out(), c.in(0), c.in(1), c.in(2), c.in(3),
                                  c.accumulate());
                 },
             .backward = backward,
             .accumulates = {0},
             .products = [](const Attributes&) { return 1.0; },
             .differentiable = backward != nullptr});
}

static const Op input_gradient_op =
    product_op("float8_input_gradient", "... n, n k, ., . -> ... k", LinearProduct::input_gradient);
static const Op weight_gradient_op = product_op(
    "float8_weight_gradient", "... n, ... k, ., . -> n k", LinearProduct::weight_gradient);

static void give_float8_gradients(const Grad& g) {
  check_first_order("float8_linear", "compute the layer in a wider dtype");
  const Tensor greatest = greatest_magnitude(g.grad());
  if (g.wants(1)) g.give(1, weight_gradient_op, {g.grad(), g.in(0), greatest, g.in(2)});
  if (g.wants(0)) g.give(0, input_gradient_op, {g.grad(), g.in(1), greatest, g.in(3)});
}

static const Op float8_linear_op = product_op("float8_linear", "... k, n k, ., . -> ... n",
                                              LinearProduct::forward, give_float8_gradients);

Tensor float8_linear(const Tensor& x, const Tensor& weight) {
  if (!x || !weight) fail("float8_linear: no tensor is given, expected one");
  const DType dtype = promote(x.dtype(), weight.dtype());
  if (!is_floating(dtype)) fail("float8_linear: dtype is ", dtype, ", expected a floating one");
  const Tensor from = as_dtype(x, dtype), by = as_dtype(weight, dtype);
  return float8_linear_op({from, by, greatest_magnitude(from), greatest_magnitude(by)});
}

}  // namespace weft

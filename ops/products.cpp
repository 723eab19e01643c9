// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/products.h"

#include <utility>

#include "ops/products.h"
#include "ops/promotion.h"
#include "src/kernels/kernel.h"
#include "src/kernels/matmul/gemm.h"
#include "weft/ops/shapes.h"

namespace weft {

static double one_product(const Attributes&) { return 1; }

static float beta_of(const Call& c) { return c.accumulate() ? 1.0f : 0.0f; }

/// Computes the call's result from operand 0 by `product(a, out)`, in parts if the rank splits its
/// products.
template <class Product> static void multiply_rows(const Call& c, const Product& product) {
  ProductParts* parts = ProductParts::current();
  parts ? parts->compute(c.in(0), c.out(), product) : product(c.in(0), c.out());
}

/// Returns `block` with the last two dims exchanged.
static MemoryBlock transposed_matrix(const MemoryBlock& block) {
  return exchanged(block, block.shape.ndim() - 2, block.shape.ndim() - 1);
}

static void give_right_factor(const Grad& g);

static const Op matmul_op = register_op({
    .name = "matmul",
    .rule = "... m k, ... k n -> ... m n",
    .linear = {{0}, {1}},
    .forward =
        [](const Call& c) {
          multiply_rows(c, [&](const MemoryBlock& a, const MemoryBlock& out) {
            gemm(a, c.in(1), out, beta_of(c));
          });
        },
    .backward =
        [](const Grad& g) {
          if (g.wants(0)) g.give(0, matmul(g.grad(), transpose(g.in(1), -2, -1)));
          if (g.wants(1)) give_right_factor(g);
        },
    .accumulates = {0},
    .products = one_product,
    .samples = {{{{5, 7}, {7, 3}}},
                {{{2, 5, 7}, {2, 7, 3}}},
                {{{2, 5, 7}, {7, 3}}},
                {.shapes = {{5, 7}, {7, 3}}, .dtypes = {i64, i64}, .low = -9, .high = 9}},
});

/// The gradient of a linear layer's weight: contracts over all leading dims at once, instead of a
/// batched product and a sum.
static const Op linear_weight_gradient_op = register_op({
    .name = "linear_weight_gradient",
    .rule = "... n, ... k -> n k",
    .linear = {{0}, {1}},
    .forward = [](const Call& c) { gemm_over_leading(c.in(0), c.in(1), c.out(), beta_of(c)); },
    .backward =
        [](const Grad& g) {
          if (g.wants(0)) g.give(0, linear(g.in(1), g.grad()));
          if (g.wants(1)) g.give(1, matmul(g.in(0), g.grad()));
        },
    .accumulates = {0},
    .products = one_product,
    .samples = {{{{5, 7}, {5, 3}}}, {{{2, 5, 7}, {2, 5, 3}}}},
});

/// A matrix that all leading dims of the left factor share is contracted over them.
static void give_right_factor(const Grad& g) {
  bool shared = g.in_shape(1).ndim() == 2;
  if (shared) {
    g.give(1, linear_weight_gradient_op, {g.in(0), g.grad()});
  } else {
    g.give(1, matmul(transpose(g.in(0), -2, -1), g.grad()));
  }
}

static void give_linear(const Grad& g) {
  if (g.wants(1)) g.give(1, linear_weight_gradient_op, {g.grad(), g.in(0)});
  if (g.wants(0)) g.give(0, matmul(g.grad(), g.in(1)));
}

static const Op linear_op = register_op({
    .name = "linear",
    .rule = "... k, n k -> ... n",
    .linear = {{0}, {1}},
    .forward =
        [](const Call& c) {
          multiply_rows(c, [&](const MemoryBlock& a, const MemoryBlock& out) {
            gemm(a, transposed_matrix(c.in(1)), out, beta_of(c));
          });
        },
    .backward = give_linear,
    .accumulates = {0},
    .products = one_product,
    .samples = {{{{5, 7}, {3, 7}}}, {{{2, 5, 7}, {3, 7}}}},
});

static const Op linear_bias_op = register_op({
    .name = "linear_bias",
    .rule = "... k, n k, n -> ... n",
    .linear = {{0, 2}, {1, 2}},
    .forward =
        [](const Call& c) {
          multiply_rows(c, [&](const MemoryBlock& a, const MemoryBlock& out) {
            gemm(a, transposed_matrix(c.in(1)), c.in(2), out, beta_of(c));
          });
        },
    .backward =
        [](const Grad& g) {
          give_linear(g);
          g.give(2, g.grad());
        },
    .saves_in = std::vector<int>{0, 1},
    .accumulates = {0},
    .products = one_product,
    .samples = {{{{5, 7}, {3, 7}, {3}}}, {{{2, 5, 7}, {3, 7}, {3}}}},
});

const Op& matmul_product() { return matmul_op; }

Tensor matmul(const Tensor& a, const Tensor& b) {
  const bool truths = a && b && promote(a.dtype(), b.dtype()) == boolean;
  if (truths) return cast(matmul(cast(a, i32), cast(b, i32)), boolean);
  return call_promoted(matmul_op, a, b);
}

Tensor linear(const Tensor& x, const Tensor& weight) { return call_promoted(linear_op, x, weight); }

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (!x || !weight || !bias) fail("linear: no tensor is given, expected one");
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
    if (after_) after_(part, out);
  }
}

}  // namespace weft

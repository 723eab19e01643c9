// SPDX-License-Identifier: Apache-2.0
#include "ops/decompositions.h"

#include <limits>

#include "ops/dims.h"
#include "ops/promotion.h"
#include "src/kernels/linalg/linalg.h"
#include "weft/ops.h"

namespace weft {

// Gradients: M. B. Giles, "An extended collection of matrix derivative results for forward and
// reverse mode algorithmic differentiation", 2008; I. Murray, "Differentiation of the Cholesky
// decomposition", 2016; S. F. Walter and L. Lehmann, "Algorithmic differentiation of linear algebra
// functions with application in optimum experimental design", 2010 (QR, eigenvectors); J. Townsend,
// "Differentiating the singular value decomposition", 2016. All are written in tensor ops, whose
// gradients are second derivatives. Gradients of complex matrices take adjoints where those of real
// ones take transposes (PyTorch's convention).

static const Takes kMatrices{.dtypes = {f32, DType::f64, DType::c64, DType::c128}};

/// Describes flags of an op whose operand 0 is square.
static Structure flags_of_square(const char* names, int flags) {
  return {names, [flags](const Dims& s, std::span<const Shape> shapes) {
            if (s.ndim() != flags || !std::all_of(s.begin(), s.end(), is_flag)) return false;
            const int ndim = shapes[0].ndim();
            return ndim >= 2 && shapes[0][ndim - 2] == shapes[0][ndim - 1];
          }};
}

template <class... Flags> static Attributes flags(Flags... values) {
  return {.structure = {static_cast<int64_t>(values)...}};
}

/// The lower triangle with half the diagonal.
static Tensor half_triangle(const Tensor& a) { return mul(add(tril(a), tril(a, -1)), 0.5); }

/// x / t or x / t^H, for a triangle t.
static Tensor divided_by(const Tensor& x, const Tensor& a, bool upper, bool transposed, bool unit) {
  return t(solve_triangle(a, t(x), upper, !transposed, unit));
}

/// Whether row and column are equal, for the last two dims of `a`.
static Tensor is_on_diagonal(const Tensor& a) {
  return equal(unsqueeze(numbers_next_to(a, 0, a.size(-2)), 1), numbers_next_to(a, 0, a.size(-1)));
}

Tensor inverses_off_diagonal(const Tensor& x) {
  return reciprocal(masked_fill(x, is_on_diagonal(x), std::numeric_limits<double>::infinity()));
}

static Tensor scaled_columns(const Tensor& a, const Tensor& by) {
  return mul(a, unsqueeze(by, -2));
}

static void give_cholesky(const Grad& g) {
  const bool upper = g.attribute(0);
  const Tensor l = upper ? t(g.out()) : g.out(), grad = upper ? t(g.grad()) : g.grad();
  const Tensor half = solve_triangle(l, half_triangle(matmul(t(l), grad)), false, true);
  const Tensor both = divided_by(half, l, false, false, false);
  g.give(0, mul(add(both, t(both)), 0.5));
}

static DType integer_behind(std::span<const DType> dtypes, bool is_integer, DType integer = i32) {
  return is_integer ? integer : dtypes[0];
}

static const Op cholesky_op = register_op({
    .name = "cholesky_factor",
    .rule = "... [n] [m] -> ... [n] [m], ...",
    .takes = {kMatrices},
    .structure = flags_of_square("upper", 1),
    .dtype = [](const Attributes&, std::span<const DType> dtypes,
                int i) { return integer_behind(dtypes, i == 1); },
    .forward = [](const Call& c) { cholesky_factor(c.out(), c.out(1), c.in(0), c.attribute(0)); },
    .backward = give_cholesky,
    .saves_in = std::vector<int>{},
    .saves_out = {0},
    // Random matrices are positive definite only if they are small.
    .samples = {sample_with({{5, 3, 1, 1}}, {0}, {}, 1, 2),
                sample_with({{7, 1, 1}}, {1}, {}, 1, 2)},
});

CholeskyFactor cholesky_factor(const Tensor& a, bool upper) {
  const Tensors results = agreed(cholesky_op.call({a}, flags(upper)));
  return {results[0], results[1]};
}

static void give_triangle(const Grad& g) {
  const bool upper = g.attribute(0), transposed = g.attribute(1), unit = g.attribute(2);
  const Tensor of_b = solve_triangle(g.in(0), g.grad(), upper, !transposed, unit);
  if (g.wants(1)) g.give(1, of_b);
  if (!g.wants(0)) return;
  const Tensor whole = transposed ? matmul(g.out(), t(of_b)) : matmul(of_b, t(g.out()));
  g.give(0, neg(upper ? triu(whole, unit) : tril(whole, -int64_t{unit})));
}

static const Op triangle_op = register_op({
    .name = "solve_triangle",
    .rule = "... [n] [m], ... [m] k -> ... [n] k",
    .takes = {kMatrices},
    .structure = flags_of_square("upper, transposed, unit", 3),
    .linear = {{1}},
    .forward =
        [](const Call& c) {
          const Triangle triangle{c.attribute(0) != 0, c.attribute(1) != 0, c.attribute(2) != 0};
          solve_triangle(c.out(), c.in(0), c.in(1), triangle);
        },
    .backward = give_triangle,
    .saves_in = std::vector<int>{0},
    .saves_out = {0},
    .samples = {sample_with({{3, 3}, {3, 5}}, {0, 0, 0}, {}, 1, 2),
                sample_with({{5, 2, 2}, {2, 3}}, {1, 0, 1}, {}, 1, 2),
                sample_with({{2, 2}, {5, 2, 3}}, {1, 1, 0}, {}, 1, 2)},
});

Tensor solve_triangle(const Tensor& a, const Tensor& b, bool upper, bool transposed, bool unit) {
  return triangle_op({a, b}, flags(upper, transposed, unit));
}

/// The permutation matrix that exchanges rows as a factorisation did: p l u is the matrix.
static Tensor matrix_of_order(const Tensor& order, DType dtype) {
  const Tensor rows = numbers_next_to(order, 0, order.size(-1));
  return as_dtype(equal(unsqueeze(rows, 1), unsqueeze(order, -2)), dtype);
}

/// For more rows than columns, l = [l1, l2] and l2 u = b2, the last rows of the exchanged matrix.
static void give_lu(const Grad& g) {
  const int64_t m = g.in_shape(0)[g.in_shape(0).ndim() - 2], n = g.in_shape(0).back();
  const Tensor lu = slice(g.out(), -2, 0, n), grad = slice(g.grad(), -2, 0, n);
  Tensor of_u = triu(grad), below;
  if (m > n) {
    const Tensor l2 = slice(g.out(), -2, n, m);
    below = divided_by(slice(g.grad(), -2, n, m), lu, true, true, false);
    of_u = triu(sub(of_u, matmul(t(l2), below)));
  }
  const Tensor l = tril(lu, -1), u = triu(lu);
  // The diagonal of l is 1: it adds only to what is left out.
  const Tensor inner = add(tril(matmul(t(l), tril(grad, -1)), -1), tril(grad, -1));
  const Tensor both = add(tril(inner, -1), triu(matmul(of_u, t(u))));
  Tensor whole = divided_by(solve_triangle(lu, both, false, true, true), lu, true, true, false);
  if (m > n) whole = cat({whole, below}, -2);
  g.give(0, matmul(matrix_of_order(g.out(2), whole.dtype()), whole));
}

static const Op lu_factor_op = register_op({
    .name = "lu_factor",
    .rule = "... [m] [n] -> ... [m] [n], ... [n], ... [m], ...",
    .takes = {kMatrices},
    .structure = {"",
                  [](const Dims& s, std::span<const Shape> shapes) {
                    const int ndim = shapes[0].ndim();
                    return s.empty() && ndim >= 2 && shapes[0][ndim - 2] >= shapes[0][ndim - 1];
                  }},
    .dtype = [](const Attributes&, std::span<const DType> dtypes,
                int i) { return integer_behind(dtypes, i > 0, i == 2 ? i64 : i32); },
    .forward = [](const Call& c) { lu_factor(c.out(), c.out(1), c.out(2), c.out(3), c.in(0)); },
    .backward = give_lu,
    .saves_in = std::vector<int>{},
    .saves_out = {0, 2},
    .samples = {{{{3, 3}}}, {{{5, 4, 2}}}},
});

LuFactor lu_factor_of(const Tensor& a) {
  const Tensors results = agreed(lu_factor_op.call({a}));
  return {results[0], results[1], results[2], results[3]};
}

static void give_solution(const Grad& g) {
  const bool transposed = g.attribute(0);
  const Tensor of_b = solve_by_lu(g.in(0), g.in(1), g.in(2), g.grad(), !transposed);
  if (g.wants(3)) g.give(3, of_b);
  if (!g.wants(0)) return;
  g.give(0, neg(transposed ? matmul(g.out(), t(of_b)) : matmul(of_b, t(g.out()))));
}

/// Not among all_ops(): random factors are not those of operand 0.
static const Op solve_by_lu_op({
    .name = "solve_by_lu",
    .rule = "... [n] [m], ... [n] [m], ... [n], ... [m] k -> ... [n] k",
    .takes = {kMatrices, kMatrices, {.dtypes = {i32}}, kMatrices},
    .structure = flags_of_square("transposed", 1),
    .linear = {{3}},
    .forward = [](const Call& c) { lu_solve(c.out(), c.in(1), c.in(2), c.in(3), c.attribute(0)); },
    .backward = give_solution,
    .saves_in = std::vector<int>{0, 1, 2},
    .saves_out = {0},
});

Tensor solve_by_lu(const Tensor& a, const Tensor& lu, const Tensor& pivots, const Tensor& b,
                   bool transposed) {
  return solve_by_lu_op({a, lu, pivots, b}, flags(transposed));
}

static void give_qr(const Grad& g) {
  const Tensor q = g.out(), r = g.out(1), of_q = g.grad(), of_r = g.grad(1);
  Tensor m;
  if (of_r) m = matmul(r, t(of_r));
  if (of_q) m = m ? sub(m, matmul(t(of_q), q)) : neg(matmul(t(of_q), q));
  // The diagonal of r is real.
  const Tensor half = half_triangle(m);
  Tensor whole = matmul(q, add(half, t(half)));
  if (of_q) whole = add(whole, of_q);
  g.give(0, divided_by(whole, r, true, true, false));
}

static const Op qr_op = register_op({
    .name = "qr_factor",
    .rule_of =
        [](const Attributes& attributes, std::span<const Shape> shapes) {
          const Shape& shape = shapes[0];
          const int64_t m = shape.ndim() < 2 ? 0 : shape[shape.ndim() - 2];
          return Rule{"... [m] [n] -> ... [m] [+k], ... [+k] [n]",
                      {{"k", attributes.structure[0] ? m : std::min(m, shape.back())}}};
        },
    .takes = {kMatrices},
    .structure = {"complete",
                  [](const Dims& s, std::span<const Shape> shapes) {
                    return s.ndim() == 1 && is_flag(s[0]) && shapes[0].ndim() >= 2;
                  }},
    .forward = [](const Call& c) { qr_factor(c.out(), c.out(1), c.in(0)); },
    .backward = give_qr,
    .saves_in = std::vector<int>{},
    .saves_out = {0, 1},
    .samples = {sample_with({{4, 3}}, {0}), sample_with({{5, 3, 2}}, {0})},
});

QrFactor qr_factor(const Tensor& a, bool complete) {
  const Tensors results = agreed(qr_op.call({a}, flags(complete)));
  return {results[0], results[1]};
}

static Tensor skew(const Tensor& a) { return sub(a, t(a)); }

/// Returns `dtype` for i = 0, real numbers for one other result and i32 for the last one.
static DType spectral_dtype(std::span<const DType> dtypes, int i, int values, int info) {
  return i == info ? i32 : i == values ? real_dtype(dtypes[0]) : dtypes[0];
}

/// Adds numbers to the diagonal of matrices, which may be missing; complex ones for `dtype`.
static Tensor with_diagonal(const Tensor& inner, const Tensor& values, DType dtype) {
  const Tensor whole = as_dtype(diag_embed(values), dtype);
  return inner ? add(inner, whole) : whole;
}

/// The symmetric gradient: which triangle is read does not matter.
static void give_eigen(const Grad& g) {
  const Tensor values = g.out(), vectors = g.out(1), of_values = g.grad(), of_vectors = g.grad(1);
  Tensor inner;
  if (of_vectors) {
    const Tensor apart = sub(unsqueeze(values, -2), unsqueeze(values, -1));
    inner = mul(mul(skew(matmul(t(vectors), of_vectors)), 0.5), inverses_off_diagonal(apart));
  }
  if (of_values) inner = with_diagonal(inner, of_values, vectors.dtype());
  g.give(0, matmul(matmul(vectors, inner), t(vectors)));
}

static OpSpec eigen_spec(const char* name, const char* rule) {
  OpSpec spec;
  spec.name = name;
  spec.rule_text = rule;
  spec.takes = {kMatrices};
  spec.structure = flags_of_square("upper", 1);
  spec.samples = {sample_with({{5, 3, 1, 1}}, {0}), sample_with({{7, 1, 1}}, {1})};
  return spec;
}

static Op register_eigen() {
  OpSpec spec = eigen_spec("symmetric_eigen", "... [n] [m] -> ... [n], ... [n] [m], ...");
  spec.dtype = [](const Attributes&, std::span<const DType> dtypes, int i) {
    return spectral_dtype(dtypes, i, 0, 2);
  };
  spec.forward = [](const Call& c) {
    symmetric_eigen(c.out(), &c.out(1), c.out(2), c.in(0), c.attribute(0));
  };
  spec.backward = give_eigen;
  spec.saves_in = std::vector<int>{};
  spec.saves_out = {0, 1};
  return register_op(std::move(spec));
}
static const Op eigen_op = register_eigen();

SymmetricEigen symmetric_eigen(const Tensor& a, bool upper) {
  const Tensors results = agreed(eigen_op.call({a}, flags(upper)));
  return {results[0], results[1], results[2]};
}

static Op register_eigenvalues() {
  OpSpec spec = eigen_spec("symmetric_eigenvalues", "... [n] [m] -> ... [n], ...");
  spec.dtype = [](const Attributes&, std::span<const DType> dtypes, int i) {
    return spectral_dtype(dtypes, i, 0, 1);
  };
  spec.forward = [](const Call& c) {
    symmetric_eigen(c.out(), nullptr, c.out(1), c.in(0), c.attribute(0));
  };
  spec.backward = [](const Grad& g) {
    const Tensor vectors = symmetric_eigen(g.in(0), g.attribute(0)).vectors;
    g.give(0, matmul(scaled_columns(vectors, g.grad()), t(vectors)));
  };
  return register_op(std::move(spec));
}
static const Op eigenvalues_op = register_eigenvalues();

SymmetricEigen symmetric_eigenvalues(const Tensor& a, bool upper) {
  const Tensors results = agreed(eigenvalues_op.call({a}, flags(upper)));
  return {results[0], {}, results[1]};
}

/// With full u and vh, their first columns and rows have gradients.
static void give_singular(const Grad& g) {
  const Tensor s = g.out(1), of_s = g.grad(1);
  const int64_t k = s.size(-1);
  const Tensor u = slice(g.out(), -1, 0, k), vh = slice(g.out(2), -2, 0, k);
  const Tensor of_u = g.grad() ? slice(g.grad(), -1, 0, k) : Tensor();
  const Tensor of_vh = g.grad(2) ? slice(g.grad(2), -2, 0, k) : Tensor();
  const Tensor squares = mul(s, s), row = unsqueeze(s, -2), column = unsqueeze(s, -1);
  Tensor inner = of_s ? with_diagonal({}, of_s, u.dtype()) : zeros_like(matmul(vh, t(vh)));
  if (of_u || of_vh) {
    const Tensor apart = inverses_off_diagonal(sub(unsqueeze(squares, -2), unsqueeze(squares, -1)));
    const Tensor turned = of_u ? skew(matmul(t(u), of_u)) : Tensor();
    if (of_u) inner = add(inner, mul(mul(turned, apart), row));
    // The phases of a column of u and a row of vh turn together.
    if (turned && of_vh && is_complex(u.dtype()))
      inner = with_diagonal(inner, div(diagonal(turned), mul(s, 2)), u.dtype());
    if (of_vh) inner = add(inner, mul(mul(skew(matmul(vh, t(of_vh))), apart), column));
  }
  Tensor whole = matmul(matmul(u, inner), vh);
  if (of_u && u.size(-2) > k) {
    const Tensor outside = div(sub(of_u, matmul(u, matmul(t(u), of_u))), row);
    whole = add(whole, matmul(outside, vh));
  }
  if (of_vh && vh.size(-1) > k) {
    const Tensor outside = div(sub(of_vh, matmul(matmul(of_vh, t(vh)), vh)), column);
    whole = add(whole, matmul(u, outside));
  }
  g.give(0, whole);
}

static Rule singular_rule(const Attributes& attributes, std::span<const Shape> shapes) {
  const Shape& shape = shapes[0];
  const int64_t m = shape.ndim() < 2 ? 0 : shape[shape.ndim() - 2], n = shape.back();
  const int64_t k = std::min(m, n);
  if (attributes.structure.empty()) return {"... [m] [n] -> ... [+k], ...", {{"k", k}}};
  const bool full = attributes.structure[0] != 0;
  return {"... [m] [n] -> ... [m] [+c], ... [+k], ... [+r] [n], ...",
          {{"c", full ? m : k}, {"k", k}, {"r", full ? n : k}}};
}

static const Op singular_op = register_op({
    .name = "singular_value_decomposition",
    .rule_of = singular_rule,
    .takes = {kMatrices},
    .structure = {"full",
                  [](const Dims& s, std::span<const Shape> shapes) {
                    return s.ndim() == 1 && is_flag(s[0]) && shapes[0].ndim() >= 2;
                  }},
    .dtype = [](const Attributes&, std::span<const DType> dtypes,
                int i) { return spectral_dtype(dtypes, i, 1, 3); },
    .forward =
        [](const Call& c) { singular_values(&c.out(), c.out(1), &c.out(2), c.out(3), c.in(0)); },
    .backward = give_singular,
    .saves_in = std::vector<int>{},
    .saves_out = {0, 1, 2},
    .samples = {sample_with({{4, 3}}, {0}), sample_with({{5, 2, 3}}, {0}),
                sample_with({{5, 3, 3}}, {1})},
});

SingularValues singular_values(const Tensor& a, bool full) {
  const Tensors results = agreed(singular_op.call({a}, flags(full)));
  return {results[0], results[1], results[2], results[3]};
}

static const Op singular_values_op = register_op({
    .name = "singular_values",
    .rule_of = singular_rule,
    .takes = {kMatrices},
    .structure = {"",
                  [](const Dims& s, std::span<const Shape> shapes) {
                    return s.empty() && shapes[0].ndim() >= 2;
                  }},
    .dtype = [](const Attributes&, std::span<const DType> dtypes,
                int i) { return spectral_dtype(dtypes, i, 0, 1); },
    .forward = [](const Call& c) { singular_values(nullptr, c.out(), nullptr, c.out(1), c.in(0)); },
    .backward =
        [](const Grad& g) {
          const SingularValues parts = singular_values(g.in(0), false);
          g.give(0, matmul(scaled_columns(parts.u, g.grad()), parts.vh));
        },
    .samples = {{{{4, 3}}}, {{{5, 2, 3}}}},
});

SingularValues singular_values_alone(const Tensor& a) {
  const Tensors results = agreed(singular_values_op.call({a}));
  return {{}, results[0], {}, results[1]};
}

}  // namespace weft

// SPDX-License-Identifier: Apache-2.0
#include "ops/composed/cut_matrices.h"
#include "ops/composed/matrices.h"
#include "weft/extend/tape.h"
#include "weft/ops.h"

namespace weft::linalg {

// Gradients are computed in panels, too. The formulas are those of decompositions.cpp.

Tensor cut_solve_triangle(const Tensor& a, const Tensor& b, bool upper, bool transposed,
                          bool unit) {
  const Tensor x = solve_triangle_of_rows(a.detach(), b.detach(), upper, transposed, unit);
  if (!needs_gradient(a) && !needs_gradient(b)) return x;
  const bool wants_a = needs_gradient(a);
  return record("solve_triangular", {a, b}, {x}, [=](const Tensors& gradients) -> Tensors {
    const Tensor out = as_output(0, x);
    const Tensor of_b = cut_solve_triangle(as_input(0, a), gradients[0], upper, !transposed, unit);
    if (!wants_a) return {Tensor(), of_b};
    const Tensor whole = transposed ? matmul(out, t(of_b)) : matmul(of_b, t(out));
    return {neg(upper ? triu(whole, unit) : tril(whole, -int64_t{unit})), of_b};
  })[0];
}

Tensor cut_solve(const Tensor& a, const LuFactor& factors, const Tensor& b, bool transposed) {
  const Tensor x = solve_by_lu_of_rows(factors.lu, factors.order, b.detach(), transposed);
  if (!needs_gradient(a) && !needs_gradient(b)) return x;
  const bool wants_a = needs_gradient(a);
  return record("solve", {a, b}, {x}, [=](const Tensors& gradients) -> Tensors {
    const Tensor out = as_output(0, x);
    const Tensor of_b = cut_solve(as_input(0, a), factors, gradients[0], !transposed);
    if (!wants_a) return {Tensor(), of_b};
    const Tensor of_a = transposed ? matmul(out, t(of_b)) : matmul(of_b, t(out));
    return {neg(of_a), of_b};
  })[0];
}

CholeskyFactor cut_cholesky(const Tensor& a) {
  CholeskyFactor found = cholesky_of_rows(a.detach());
  if (!needs_gradient(a)) return found;
  const Tensor l = found.l;
  found.l = record("cholesky", {a}, {l}, [=](const Tensors& gradients) -> Tensors {
    const Tensor out = as_output(0, l), whole = matmul(t(out), gradients[0]);
    const Tensor triangle = mul(add(tril(whole), tril(whole, -1)), 0.5);
    const Tensor half = cut_solve_triangle(out, triangle, false, true, false);
    const Tensor both = t(cut_solve_triangle(out, t(half), false, true, false));
    return {mul(add(both, t(both)), 0.5)};
  })[0];
  return found;
}

}  // namespace weft::linalg

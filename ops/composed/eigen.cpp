// SPDX-License-Identifier: Apache-2.0
#include "ops/composed/matrices.h"
#include "ops/decompositions.h"
#include "ops/dims.h"
#include "ops/promotion.h"
#include "src/kernels/linalg/linalg.h"
#include "weft/linalg.h"
#include "weft/ops.h"

namespace weft {

// Eigenvalues and eigenvectors of general matrices, which are complex. Gradients: C. Boeddeker et
// al., "On the computation of complex-valued gradients with application to statistically optimum
// beamforming", 2017.

/// v^-H inner v^H, real where the matrices are.
static void give_inner(const Grad& g, const Tensor& vectors, const Tensor& inner) {
  const Tensor adjoint = t(vectors);
  const LuFactor factors = lu_factor_of(adjoint.detach());
  const Tensor whole = solve_by_lu(adjoint, factors.lu, factors.pivots, matmul(inner, adjoint));
  g.give(0, is_complex(g.in_dtype(0)) ? whole : real(whole));
}

static void give_general(const Grad& g) {
  const Tensor values = g.out(), vectors = g.out(1), of_values = g.grad(), of_vectors = g.grad(1);
  Tensor inner;
  if (of_vectors) {
    const Tensor apart = conj(sub(unsqueeze(values, -2), unsqueeze(values, -1)));
    const Tensor turned = matmul(t(vectors), of_vectors);
    const Tensor lengths = unsqueeze(real(diagonal(turned)), -2);
    const Tensor projected = sub(turned, mul(matmul(t(vectors), vectors), lengths));
    inner = mul(projected, inverses_off_diagonal(apart));
  }
  if (of_values) inner = inner ? add(inner, diag_embed(of_values)) : diag_embed(of_values);
  give_inner(g, vectors, inner);
}

static OpSpec general_spec(const char* name, const char* rule, int info) {
  OpSpec spec;
  spec.name = name;
  spec.rule_text = rule;
  spec.takes = {{.dtypes = {f32, DType::f64, DType::c64, DType::c128}}};
  spec.structure = {"", [](const Dims& s, std::span<const Shape> shapes) {
                      const int ndim = shapes[0].ndim();
                      return s.empty() && ndim >= 2 && shapes[0][ndim - 2] == shapes[0][ndim - 1];
                    }};
  spec.dtype = [info](const Attributes&, std::span<const DType> dtypes, int i) {
    return i == info ? i32 : complex_dtype(dtypes[0]);
  };
  return spec;
}

/// These ops are not among all_ops(), whose results are real.
static Op general_op() {
  OpSpec spec = general_spec("general_eigen", "... [n] [m] -> ... [n], ... [n] [m], ...", 2);
  spec.forward = [](const Call& c) { general_eigen(c.out(), &c.out(1), c.out(2), c.in(0)); };
  spec.backward = give_general;
  spec.saves_in = std::vector<int>{};
  spec.saves_out = {0, 1};
  return Op(std::move(spec));
}

static Op general_values_op() {
  OpSpec spec = general_spec("general_eigenvalues", "... [n] [m] -> ... [n], ...", 1);
  spec.forward = [](const Call& c) { general_eigen(c.out(), nullptr, c.out(1), c.in(0)); };
  spec.backward = [](const Grad& g) {
    give_inner(g, general_eigen(g.in(0)).vectors, diag_embed(g.grad()));
  };
  return Op(std::move(spec));
}

SymmetricEigen general_eigen(const Tensor& a) {
  static const Op op = general_op();
  const Tensors results = agreed(op.call({a}));
  return {results[0], results[1], results[2]};
}

SymmetricEigen general_eigenvalues(const Tensor& a) {
  static const Op op = general_values_op();
  const Tensors results = agreed(op.call({a}));
  return {results[0], {}, results[1]};
}

namespace linalg {

Eigh eig(const Tensor& a) {
  const SymmetricEigen found = general_eigen(square("eig", a));
  check_converged("eig", a, found.info);
  return {found.values, found.vectors};
}

Tensor eigvals(const Tensor& a) {
  const SymmetricEigen found = general_eigenvalues(square("eigvals", a));
  check_converged("eigvals", a, found.info);
  return found.values;
}

}  // namespace linalg

}  // namespace weft

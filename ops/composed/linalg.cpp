// SPDX-License-Identifier: Apache-2.0
#include "weft/linalg.h"

#include <algorithm>
#include <limits>

#include "ops/composed/cut_matrices.h"
#include "ops/composed/matrices.h"
#include "ops/decompositions.h"
#include "ops/engine/tensor_body.h"
#include "ops/promotion.h"
#include "weft/autograd.h"
#include "weft/context.h"
#include "weft/extend/tape.h"
#include "weft/ops.h"

namespace weft::linalg {

Tensor matrices(const char* what, const Tensor& a) {
  check_tensor(what, a);
  if (a.ndim() < 2) fail(what, ": tensor is ", a.shape(), ", expected at least 2 dims");
  const DType dtype = a.dtype();
  if (is_complex(dtype) && a.device().kind == DeviceKind::cuda)
    fail(what, ": device is ", a.device(), ", expected the CPU for complex matrices");
  if (real_dtype(dtype) == DType::f32 || real_dtype(dtype) == DType::f64) return a;
  if (!is_floating(dtype) && dtype != DType::boolean) return cast(a, DType::f32);
  fail(what, ": dtype is ", dtype, ", expected ", DType::f32, ", ", DType::f64, ", ", DType::c64,
       ", ", DType::c128, " or integers; cast the tensor");
}

Tensor square(const char* what, const Tensor& a) {
  const Tensor made = matrices(what, a);
  if (a.size(-2) == a.size(-1)) return made;
  fail(what, ": matrices of ", a.shape(), " have ", a.size(-2), " rows and ", a.size(-1),
       " columns, expected square ones");
}

/// Checks that leading dims broadcast, and rows of b: `rows` says how many a has.
static void check_right_side(const char* what, const Tensor& a, const Tensor& b, int64_t rows) {
  if (b.size(-2) != rows) {
    fail(what, ": matrices of the right-hand side ", b.shape(), " have ", b.size(-2),
         " rows, expected ", rows, " as those of ", a.shape());
  }
  for (int d = 3; d <= std::min(a.ndim(), b.ndim()); ++d) {
    const int64_t own = a.size(-d), other = b.size(-d);
    if (own == other || own == 1 || other == 1) continue;
    fail(what, ": dim ", b.ndim() - d, " of the right-hand side ", b.shape(), " is ", other,
         ", expected ", own, " as dim ", a.ndim() - d, " of ", a.shape());
  }
}

/// Throws on all ranks if an entry of `info` is not 0, which `because` puts in words.
template <class Because>
static void check_info(const char* what, const Tensor& a, const Tensor& info,
                       const Because& because) {
  if (info.numel() == 0 || info.device().kind == DeviceKind::meta) return;
  const NoGrad no_grad;
  const Tensor greatest = max(abs(info));
  if ((greatest.is_sharded() ? greatest.full_tensor() : greatest).item() == 0) return;
  const Tensor whole = info.is_sharded() ? info.full_tensor() : info;
  const std::vector<int64_t> codes = whole.to_vector<int64_t>();
  const size_t first = static_cast<size_t>(
      std::find_if(codes.begin(), codes.end(), [](int64_t code) { return code != 0; }) -
      codes.begin());
  const std::string which = codes.size() > 1 ? concat("matrix ", first, " of ", a.shape())
                                             : concat("the matrix ", a.shape());
  fail(what, ": ", which, ' ', because(codes[first]));
}

static std::string not_definite(int64_t order) {
  return concat("is not positive definite: its leading minor of order ", order,
                " is not positive, expected a positive one");
}
static std::string is_singular(int64_t at) {
  return concat("is singular: U[", at - 1, ", ", at - 1, "] of its LU factors is 0, expected a ",
                "number that is not; lstsq and pinv take singular matrices");
}
void check_converged(const char* what, const Tensor& a, const Tensor& info) {
  check_info(what, a, info, [](int64_t code) {
    return code < 0 ? "has an infinity or a NaN, expected finite numbers"
                    : "has no result: the algorithm did not converge";
  });
}

FactorAndInfo cholesky_ex(const Tensor& a, bool upper) {
  const Tensor of = square("cholesky", a);
  if (!is_cut(of)) {
    const CholeskyFactor found = cholesky_factor(of, upper);
    return {found.l, found.info};
  }
  const CholeskyFactor found = cut_cholesky(upper ? t(of) : of);
  return {upper ? t(found.l) : found.l, found.info};
}

Tensor cholesky(const Tensor& a, bool upper) {
  const FactorAndInfo found = cholesky_ex(a, upper);
  check_info("cholesky", a, found.info, not_definite);
  return found.factor;
}

/// Both operands in the dtype that they promote to.
static std::pair<Tensor, Tensor> promoted(const Tensor& a, const Tensor& b) {
  const DType dtype = promote(a.dtype(), b.dtype());
  return {as_dtype(a, dtype), as_dtype(b, dtype)};
}

/// solve_triangle, in panels where the matrix is cut.
static Tensor solved(const Tensor& a, const Tensor& b, bool upper, bool transposed = false,
                     bool unit = false) {
  if (is_cut(a) && b.ndim() == 2) return cut_solve_triangle(a, b, upper, transposed, unit);
  return solve_triangle(a, b, upper, transposed, unit);
}

Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper, bool left,
                        bool unitriangular) {
  const auto [of, by] = promoted(square("solve_triangular", a), matrices("solve_triangular", b));
  const Tensor right = left ? by : t(by);
  check_right_side("solve_triangular", a, right, a.size(-1));
  const Tensor x = solved(of, right, upper, !left, unitriangular);
  return left ? x : t(x);
}

Tensor cholesky_solve(const Tensor& b, const Tensor& l, bool upper) {
  const auto [of, by] = promoted(square("cholesky_solve", l), matrices("cholesky_solve", b));
  check_right_side("cholesky_solve", l, by, l.size(-1));
  return solved(of, solved(of, by, upper, upper), upper, !upper);
}

bool needs_gradient(const Tensor& a) {
  return a.requires_grad() && Context::current().grad_enabled;
}

Tensor identity(const Tensor& a, int64_t n) { return eye(n, n, 0, options_next_to(a, a.dtype())); }

Tensor cholesky_inverse(const Tensor& l, bool upper) {
  const Tensor of = square("cholesky_inverse", l);
  return cholesky_solve(identity(of, of.size(-1)), of, upper);
}

/// The factors of any matrix: the columns behind the first square follow from these. Pivots depend
/// only on the first min(m, n) columns.
static LuFactor lu_factors(const char* what, const Tensor& given) {
  const Tensor a = matrices(what, given);
  const int64_t m = a.size(-2), n = a.size(-1);
  if (m >= n) return m == n && is_cut(a) && !needs_gradient(a) ? lu_of_rows(a) : lu_factor_of(a);
  LuFactor found = lu_factor_of(slice(a, -1, 0, m));
  const Tensor order = expand(unsqueeze(found.order, -1), slice(a, -1, m, n).shape());
  const Tensor rest = take_along_dim(slice(a, -1, m, n), order, -2);
  found.lu = cat({found.lu, solve_triangle(found.lu, rest, false, false, true)}, -1);
  return found;
}

LuFactors lu_factor(const Tensor& a) {
  const LuFactor found = lu_factors("lu_factor", a);
  return {found.lu, found.pivots};
}

Lu lu(const Tensor& a) {
  const LuFactor found = lu_factors("lu", a);
  const int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n);
  const Tensor rows = numbers_next_to(found.order, 0, m);
  const Tensor p = equal(unsqueeze(rows, 1), unsqueeze(found.order, -2));
  const Tensor ones = eye(m, k, 0, options_next_to(a, found.lu.dtype()));
  return {as_dtype(p, found.lu.dtype()), add(tril(slice(found.lu, -1, 0, k), -1), ones),
          triu(slice(found.lu, -2, 0, k))};
}

Tensor lu_solve(const Tensor& lu, const Tensor& pivots, const Tensor& b, bool transposed) {
  const auto [of, by] = promoted(square("lu_solve", lu), matrices("lu_solve", b));
  check_right_side("lu_solve", lu, by, lu.size(-1));
  if (pivots.dtype() != i32 || pivots.ndim() + 1 != lu.ndim() || pivots.size(-1) != lu.size(-1)) {
    fail("lu_solve: pivots are ", pivots.dtype(), ' ', pivots.shape(), ", expected ", DType::i32,
         " and the dims of ", lu.shape(), " but the last one");
  }
  if (is_cut(of) && by.ndim() == 2 && !needs_gradient(of))
    return cut_solve(of.detach(), {of, pivots, order_of(pivots), {}}, by, transposed);
  if (!needs_gradient(of)) return solve_by_lu(of, of, pivots, by, transposed);
  const Tensor one = identity(of, of.size(-1)), factors = of.detach();
  const Tensor p = solve_by_lu(one, one, pivots, one, true);
  const Tensor a = matmul(p, matmul(add(tril(of, -1), one), triu(of)));
  return solve_by_lu(a, factors, pivots, by, transposed);
}

Qr qr(const Tensor& given, std::string_view mode) {
  if (mode != "reduced" && mode != "complete" && mode != "r")
    fail("qr: mode is ", in_quotes(mode), ", expected \"reduced\", \"complete\" or \"r\"");
  const Tensor a = matrices("qr", given);
  const int64_t m = a.size(-2), n = a.size(-1);
  Qr found;
  if (m < n) {
    // The columns behind the first square follow from its factors.
    const QrFactor first = qr_factor(slice(a, -1, 0, m), false);
    found = {first.q, cat({first.r, matmul(t(first.q), slice(a, -1, m, n))}, -1)};
  } else {
    const bool complete = mode == "complete" && m > n;
    if (!complete) {
      if (const auto tall = tall_qr(a, mode != "r")) return {tall->q, tall->r};
    }
    if (complete && needs_gradient(a)) {
      fail("qr: the gradient is required of mode \"complete\" with more rows than columns ",
           a.shape(), ", expected mode \"reduced\"");
    }
    const QrFactor factors = qr_factor(a, complete);
    found = {factors.q, factors.r};
  }
  if (mode == "r") found.q = {};
  return found;
}

Svd svd(const Tensor& a, bool full_matrices) {
  const Tensor of = matrices("svd", a);
  if (const auto tall = full_matrices ? std::nullopt : tall_qr(of, true)) {
    const Svd inner = svd(tall->r, false);
    return {matmul(tall->q, inner.u), inner.s, inner.vh};
  }
  const SingularValues found = singular_values(of, full_matrices);
  check_converged("svd", a, found.info);
  return {found.u, found.s, found.vh};
}

Tensor svdvals(const Tensor& a) {
  const Tensor of = matrices("svdvals", a);
  if (const auto tall = tall_qr(of, false)) return svdvals(tall->r);
  const SingularValues found = singular_values_alone(of);
  check_converged("svdvals", a, found.info);
  return found.s;
}

Eigh eigh(const Tensor& a, bool upper) {
  const SymmetricEigen found = symmetric_eigen(square("eigh", a), upper);
  check_converged("eigh", a, found.info);
  return {found.values, found.vectors};
}

Tensor eigvalsh(const Tensor& a, bool upper) {
  const SymmetricEigen found = symmetric_eigenvalues(square("eigvalsh", a), upper);
  check_converged("eigvalsh", a, found.info);
  return found.values;
}

LuFactor constant_factors(const Tensor& a) {
  const NoGrad no_grad;
  const Tensor of = a.detach();
  return is_cut(of) ? lu_of_rows(of) : lu_factor_of(of);
}

static Shape without_last(Shape shape) {
  shape.erase(shape.ndim() - 1);
  return shape;
}

Tensor solve(const Tensor& a, const Tensor& b, bool left) {
  check_tensor("solve", a, b);
  // PyTorch's batch of vectors, where b cannot be a batch of matrices.
  const bool is_batch = a.ndim() > 2 && b.ndim() + 1 == a.ndim() &&
                        (b.size(-2) != a.size(-2) || a.numel() == 0) &&
                        b.shape() == without_last(a.shape());
  const bool is_vector = b.ndim() == 1 || is_batch;
  const Tensor column = is_vector ? unsqueeze(b, -1) : b;
  const auto [of, by] = promoted(square("solve", a), matrices("solve", column));
  const Tensor right = left || is_vector ? by : t(by);
  check_right_side("solve", a, right, a.size(-1));
  const bool in_panels = is_cut(of) && right.ndim() == 2;
  const LuFactor factors = constant_factors(in_panels ? cut_by_rows(of) : of);
  check_info("solve", a, factors.info, is_singular);
  const Tensor x = in_panels ? cut_solve(of, factors, right, !left)
                             : solve_by_lu(of, factors.lu, factors.pivots, right, !left);
  return is_vector ? squeeze(x, -1) : left ? x : t(x);
}

FactorAndInfo inv_ex(const Tensor& given) {
  const Tensor a = square("inv", given);
  const LuFactor factors = constant_factors(a);
  if (!is_cut(a))
    return {solve_by_lu(a, factors.lu, factors.pivots, identity(a, a.size(-1))), factors.info};
  const TensorOptions cut{.dtype = a.dtype(), .device = a.device(), .sharding = row_cuts(a)};
  const Tensor inverse = cut_solve(a, factors, eye(a.size(0), a.size(0), 0, cut));
  return {redistributed(inverse, a.sharding()), factors.info};
}

Tensor inv(const Tensor& a) {
  const FactorAndInfo found = inv_ex(a);
  check_info("inv", a, found.info, is_singular);
  return found.factor;
}

/// The least singular value that counts, for each matrix: [..., 1].
static Tensor least_counted(const Tensor& a, const Tensor& s, const RankTolerance& tolerance) {
  const auto as_tensor = [&](const Operand& x) {
    return x.is_number() ? number_like(s, x.number) : as_dtype(x.tensor, s.dtype());
  };
  const double eps = s.dtype() == DType::f64 ? 0x1p-52 : 0x1p-23;
  const double own = static_cast<double>(std::max(a.size(-2), a.size(-1))) * eps;
  const Operand relative = tolerance.rtol ? *tolerance.rtol : Operand(tolerance.atol ? 0 : own);
  Tensor least = mul(max(s, {-1}), as_tensor(relative));
  if (tolerance.atol) least = maximum(least, as_tensor(*tolerance.atol));
  return unsqueeze(least, -1);
}

/// G. H. Golub and V. Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares
/// problems whose variables separate", 1973.
static Tensor pinv_gradient(const Tensor& a, const Tensor& p, const Tensor& g) {
  const Tensor pt = t(p), gt = t(g);
  const Tensor left = matmul(gt, matmul(p, pt)), right = matmul(matmul(pt, p), gt);
  const Tensor outside =
      add(sub(left, matmul(a, matmul(p, left))), sub(right, matmul(matmul(right, p), a)));
  return sub(outside, matmul(pt, matmul(g, pt)));
}

/// The parts of the pseudo-inverse, v diag(s) u^T, without gradients.
static Svd inverted(const Tensor& a, const RankTolerance& tolerance) {
  const NoGrad no_grad;
  Svd parts = svd(a.detach(), false);
  const Tensor is_small = less_equal(parts.s, least_counted(a, parts.s, tolerance));
  parts.s = masked_fill(reciprocal(parts.s), is_small, 0);
  return parts;
}

Tensor pinv(const Tensor& given, const RankTolerance& tolerance) {
  const Tensor a = matrices("pinv", given);
  if (a.numel() == 0) return zeros_like(t(a));
  Tensor value;
  {
    const NoGrad no_grad;
    const Svd parts = inverted(a, tolerance);
    value = matmul(mul(t(parts.vh), unsqueeze(parts.s, -2)), t(parts.u));
  }
  if (!needs_gradient(a)) return value;
  return record("pinv", {a}, {value}, [=](const Tensors& gradients) -> Tensors {
    return {pinv_gradient(as_input(0, a), as_output(0, value), gradients[0])};
  })[0];
}

Tensor lstsq(const Tensor& a, const Tensor& b, const RankTolerance& tolerance) {
  check_tensor("lstsq", a, b);
  const bool is_vector = b.ndim() == 1;
  const auto [of, by] =
      promoted(matrices("lstsq", a), matrices("lstsq", is_vector ? unsqueeze(b, -1) : b));
  check_right_side("lstsq", a, by, a.size(-2));
  Tensor x;
  if (of.numel() == 0) {
    x = matmul(pinv(of, tolerance), by);
  } else {
    const NoGrad no_grad;
    // In this order: products with the pseudo-inverse lose digits where a is nearly singular.
    const Svd parts = inverted(of, tolerance);
    x = matmul(t(parts.vh), mul(unsqueeze(parts.s, -1), matmul(t(parts.u), by)));
  }
  if (of.numel() != 0 && (needs_gradient(of) || needs_gradient(by))) {
    const Tensor differentiable = matmul(pinv(of, tolerance), by);
    x = add(differentiable, sub(x, differentiable.detach()).detach());
  }
  return is_vector ? squeeze(x, -1) : x;
}

Tensor matrix_rank(const Tensor& a, const RankTolerance& tolerance) {
  const NoGrad no_grad;
  const Tensor s = svdvals(a);
  if (s.size(-1) == 0) return sum(cast(s, i64), {-1});
  return sum(cast(greater(s, least_counted(a, s, tolerance)), i64), {-1});
}

Tensor matrix_power(const Tensor& given, int64_t n) {
  check_tensor("matrix_power", given);
  Tensor power = n < 0 ? inv(given) : given, result;
  if (power.ndim() < 2 || power.size(-2) != power.size(-1)) square("matrix_power", given);
  if (n == 0) return add(zeros_like(given), identity(given, given.size(-1)));
  for (uint64_t left = n < 0 ? 0 - static_cast<uint64_t>(n) : static_cast<uint64_t>(n);;) {
    if (left & 1) result = result ? matmul(result, power) : power;
    if ((left >>= 1) == 0) return result;
    power = matmul(power, power);
  }
}

Tensor nuclear_norm(const Tensor& a, bool keepdims) {
  check_tensor("nuclear_norm", a);
  const bool is_half = a.dtype() == DType::bf16 || a.dtype() == DType::f16;
  const Tensor s = svdvals(is_half ? cast(a, DType::f32) : a);
  const Tensor total = sum(s, {-1}, keepdims);
  return as_dtype(keepdims ? unsqueeze(total, -1) : total, is_half ? a.dtype() : s.dtype());
}

Tensor cond(const Tensor& a, double order) {
  if (order == 2 || order == -2) {
    const Tensor s = svdvals(matrices("cond", a));
    const Tensor most = max(s, {-1}), least = min(s, {-1});
    return order == 2 ? div(most, least) : div(least, most);
  }
  const FactorAndInfo inverse = inv_ex(square("cond", a));
  const Tensor product =
      mul(matrix_norm(matrices("cond", a), order), matrix_norm(inverse.factor, order));
  return masked_fill(product, not_equal(inverse.info, 0), std::numeric_limits<double>::infinity());
}

}  // namespace weft::linalg

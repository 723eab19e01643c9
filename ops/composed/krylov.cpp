// SPDX-License-Identifier: Apache-2.0
#include "weft/krylov.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "ops/composed/matrices.h"
#include "ops/composed/solvers.h"
#include "ops/engine/tensor_body.h"
#include "ops/promotion.h"
#include "weft/autograd.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/ops.h"

namespace weft::linalg {

LinearOperator::LinearOperator(const Tensor& matrix)
    : matrix_(square("linear operator", matrix)), apply_([matrix = matrix_](const Tensor& x) {
        return x.ndim() == 1 ? squeeze(matmul(matrix, unsqueeze(x, 1)), 1) : matmul(matrix, x);
      }) {
  if (is_complex(matrix.dtype()))
    fail("linear operator: dtype is ", matrix.dtype(), ", expected a real one");
  if (matrix.ndim() == 2) return;
  fail("linear operator: tensor is ", matrix.shape(), ", expected a matrix");
}

Tensor LinearOperator::operator()(const Tensor& x) const {
  if (matrix_ && matrix_.size(1) != x.size(0)) {
    fail("linear operator: matrix is ", matrix_.shape(), ", expected ", x.size(0),
         " columns, as the vector ", x.shape());
  }
  Tensor result = apply_(x);
  if (!result) fail("linear operator: result is none, expected a tensor ", x.shape());
  if (!(result.shape() == x.shape())) {
    fail("linear operator: result is ", result.shape(), ", expected ", x.shape(),
         ", as the vector that it was given");
  }
  return result.sharding() == x.sharding() ? result : redistributed(result, x.sharding());
}

Tensor solvable(const char* what, const char* name, const Tensor& vector) {
  check_tensor(what, vector);
  if (needs_gradient(vector)) {
    fail(what, ": ", name, ' ', vector.shape(),
         " requires a gradient, expected one that does not; solve() has gradients");
  }
  if (vector.dtype() != DType::f32 && vector.dtype() != DType::f64) {
    fail(what, ": dtype of ", name, " is ", vector.dtype(), ", expected ", DType::f32, " or ",
         DType::f64);
  }
  return vector.is_sharded() && vector.sharding().has_partial()
             ? redistributed(vector, reduced_sharding(vector.sharding()))
             : vector;
}

void check_operator(const char* what, const LinearOperator& a) {
  if (!a) fail(what, ": operator is none, expected a matrix or a function");
  if (!a.matrix() || !needs_gradient(a.matrix())) return;
  fail(what, ": matrix ", a.matrix().shape(),
       " requires a gradient, expected one that does not; solve() and eigh() have gradients");
}

std::vector<double> values_of(const Tensor& a) {
  return (a.is_sharded() ? a.full_tensor() : a).to_vector<double>();
}

/// Returns the products of columns of x and y.
static Tensor products(const Tensor& x, const Tensor& y) { return sum(mul(x, y), {0}); }

double greatest(const char* what, const char* name, const Tensor& x) {
  if (x.numel() == 0) return 0;
  const double most = values_of(max(abs(x)))[0];
  if (!std::isfinite(most)) fail(what, ": ", name, " has ", most, ", expected finite elements");
  return most;
}

namespace {

/// Columns are solved together, each with its own steps; one that has converged stays as it is.
class Conjugate {
 public:
  Conjugate(const LinearOperator& a, const Tensor& b, const ConjugateGradientOptions& options)
      : a_(a), options_(options), scale_(greatest("cg", "b", b)) {
    // Squares of the elements then neither overflow nor vanish.
    if (scale_ == 0) scale_ = 1;
    b_ = div(b, scale_);
    x_ = options.x0 ? div(redistributed(solvable("cg", "x0", options.x0), b.sharding()), scale_)
                    : zeros_like(b_);
    for (const double square : values_of(products(b_, b_))) {
      bounds_.push_back(std::max(options.rtol * std::sqrt(square), options.atol / scale_));
      sizes_.push_back(std::sqrt(square));
    }
  }

  ConjugateGradientResult solve() {
    const int64_t most = options_.most_steps > 0 ? options_.most_steps : 10 * b_.size(0);
    ConjugateGradientResult result;
    Tensor r = options_.x0 ? sub(b_, a_(x_)) : b_, p, rz;
    std::vector<double> left = norms(r);
    while (!is_done(left) && result.steps < most) {
      const Tensor z = options_.preconditioner ? options_.preconditioner(r) : r;
      const Tensor before = std::exchange(rz, products(r, z));
      p = p ? add(z, mul(p, ratio(rz, before))) : z;
      const Tensor ap = a_(p), curvature = products(p, ap);
      check(values_of(curvature), left, result.steps);
      const Tensor alpha = mul(ratio(rz, curvature), still_open(left, rz));
      x_ = add(x_, mul(p, alpha));
      r = sub(r, mul(ap, alpha));
      ++result.steps;
      left = norms(r);
    }
    result.converged = is_done(left);
    if (result.steps > 0) left = norms(sub(b_, a_(x_)));
    for (size_t i = 0; i < left.size(); ++i) {
      if (left[i] > 0) result.residual = std::max(result.residual, left[i] / sizes_[i]);
    }
    result.x = mul(x_, scale_);
    return result;
  }

 private:
  /// A column without a residual has 0 / 1.
  static Tensor ratio(const Tensor& up, const Tensor& down) {
    return div(up, masked_fill(down, equal(down, 0), 1));
  }
  static std::vector<double> norms(const Tensor& r) {
    std::vector<double> all = values_of(products(r, r));
    for (double& square : all) square = std::sqrt(square);
    return all;
  }
  bool is_done(const std::vector<double>& left) const {
    for (size_t i = 0; i < left.size(); ++i) {
      if (!(left[i] <= bounds_[i])) return false;
    }
    return true;
  }
  /// 1 for each column that has not converged, otherwise 0, next to `like`.
  Tensor still_open(const std::vector<double>& left, const Tensor& like) const {
    std::vector<double> open;
    for (size_t i = 0; i < left.size(); ++i) open.push_back(left[i] <= bounds_[i] ? 0 : 1);
    const Tensor made =
        from_values(open, like.shape(), {.dtype = like.dtype(), .device = like.device()});
    return like.is_sharded() ? distribute(made, like.sharding().mesh(), {}) : made;
  }
  void check(const std::vector<double>& along, const std::vector<double>& left,
             int64_t step) const {
    for (size_t i = 0; i < along.size(); ++i) {
      if (along[i] > 0 || left[i] <= bounds_[i]) continue;
      fail("cg: x . a x is ", along[i], " for a direction x of step ", step,
           ", expected more than 0, as for a positive definite operator");
    }
  }

  const LinearOperator& a_;
  const ConjugateGradientOptions& options_;
  double scale_;
  Tensor b_, x_;
  /// The residual at which each column has converged, and the size of each column of b.
  std::vector<double> bounds_, sizes_;
};

}  // namespace

ConjugateGradientResult cg(const LinearOperator& a, const Tensor& b_given,
                           const ConjugateGradientOptions& options) {
  check_operator("cg", a);
  const Tensor b = solvable("cg", "b", b_given);
  if (b.ndim() != 1 && b.ndim() != 2) fail("cg: b is ", b.shape(), ", expected [n] or [n, k]");
  if (!(options.rtol >= 0) || !(options.atol >= 0)) {
    fail("cg: rtol and atol are ", options.rtol, " and ", options.atol, ", expected at least 0");
  }
  if (options.x0 && !(options.x0.shape() == b.shape())) {
    fail("cg: x0 is ", options.x0.shape(), ", expected ", b.shape(), ", as b");
  }
  const NoGrad no_grad;
  return Conjugate(a, b, options).solve();
}

Svd svd_lowrank(const Tensor& a_given, int64_t q, int64_t iterations) {
  const Tensor a = matrices("svd_lowrank", a_given);
  const int64_t least = std::min(a.size(-2), a.size(-1));
  if (q < 1 || q > least) fail("svd_lowrank: q is ", q, ", expected 1 to ", least);
  if (iterations < 0) fail("svd_lowrank: iterations is ", iterations, ", expected at least 0");
  std::vector<int64_t> sizes(a.shape().begin(), a.shape().end());
  sizes[sizes.size() - 2] = a.size(-1), sizes.back() = q;
  const Tensor at = t(a);
  const Tensor drawn = randn(Shape(sizes), options_next_to(a, real_dtype(a.dtype())));
  Tensor basis = qr(matmul(a, as_dtype(drawn, a.dtype()))).q;
  for (int64_t i = 0; i < iterations; ++i) {
    basis = qr(matmul(at, basis)).q;
    basis = qr(matmul(a, basis)).q;
  }
  const Svd small = svd(matmul(t(basis), a), false);
  return {matmul(basis, small.u), small.s, small.vh};
}

}  // namespace weft::linalg

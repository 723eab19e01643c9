// SPDX-License-Identifier: Apache-2.0
#include "weft/krylov.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "ops/composed/matrices.h"
#include "ops/composed/small_eigen.h"
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

/// Returns `vector` in f32 or f64, without parts of sums.
static Tensor solvable(const char* what, const char* name, const Tensor& vector) {
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

static void check_operator(const char* what, const LinearOperator& a) {
  if (!a) fail(what, ": operator is none, expected a matrix or a function");
  if (!a.matrix() || !needs_gradient(a.matrix())) return;
  fail(what, ": matrix ", a.matrix().shape(),
       " requires a gradient, expected one that does not; solve() and eigh() have gradients");
}

/// Returns the values of a small result on every rank.
static std::vector<double> values_of(const Tensor& a) {
  return (a.is_sharded() ? a.full_tensor() : a).to_vector<double>();
}

/// Returns the products of columns of x and y.
static Tensor products(const Tensor& x, const Tensor& y) { return sum(mul(x, y), {0}); }

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
  const int64_t most = options.most_steps > 0 ? options.most_steps : 10 * b.size(0);
  Tensor x =
      options.x0 ? redistributed(solvable("cg", "x0", options.x0), b.sharding()) : zeros_like(b);
  Tensor r = options.x0 ? sub(b, a(x)) : b;
  const std::vector<double> squares = values_of(products(b, b));
  ConjugateGradientResult result{.x = x};
  const auto is_done = [&](const std::vector<double>& rr) {
    result.converged = true;
    result.residual = 0;
    for (size_t i = 0; i < rr.size(); ++i) {
      const double size = std::sqrt(squares[i]), left = std::sqrt(rr[i]);
      if (!(left <= std::max(options.rtol * size, options.atol))) result.converged = false;
      if (left != 0) result.residual = std::max(result.residual, left / size);
    }
    return result.converged;
  };
  Tensor p, rz;
  while (!is_done(values_of(products(r, r))) && result.steps < most) {
    const Tensor z = options.preconditioner ? options.preconditioner(r) : r;
    const Tensor before = std::exchange(rz, products(r, z));
    // A column that is solved exactly has r = 0, and stays.
    const auto ratio = [](const Tensor& up, const Tensor& down) {
      return div(up, masked_fill(down, equal(down, 0), 1));
    };
    p = p ? add(z, mul(p, ratio(rz, before))) : z;
    const Tensor ap = a(p), curvature = products(p, ap);
    const std::vector<double> along = values_of(curvature), rest = values_of(rz);
    for (size_t i = 0; i < along.size(); ++i) {
      if (along[i] > 0 || rest[i] == 0) continue;
      fail("cg: x . a x is ", along[i], " for a direction x of step ", result.steps,
           ", expected more than 0, as for a positive definite operator");
    }
    const Tensor alpha = ratio(rz, curvature);
    x = add(x, mul(p, alpha));
    r = sub(r, mul(ap, alpha));
    ++result.steps;
  }
  result.x = x;
  return result;
}

namespace {

/// An orthonormal basis that grows by products with the operator, and the operator in that basis.
class Lanczos {
 public:
  Lanczos(const LinearOperator& a, const Tensor& v0, int64_t most)
      : a_(a), most_(most), small_(static_cast<size_t>(most * most)) {
    take(v0, 0);
    if (norm_ == 0) fail("eigsh: v0 is 0, expected a vector with another element");
  }

  /// Extends the basis to `most` vectors, or to fewer that span an invariant space with all of n.
  void extend() {
    const int64_t n = basis_[0].size(0);
    while (size_ < most_) {
      const Tensor w = a_(basis_[static_cast<size_t>(size_)]);
      const std::vector<double> along = take(w, size_ + 1);
      for (int64_t i = 0; i <= size_; ++i)
        at(i, size_) = at(size_, i) = along[static_cast<size_t>(i)];
      scale_ = std::max(scale_, std::hypot(norm_, at(size_, size_)));
      ++size_;
      coupling_ = norm_;
      if (coupling_ > 10 * eps() * scale_) continue;
      coupling_ = 0;
      if (size_ == n) return;
      take(randn_like(basis_[0]), size_);
    }
  }

  SmallEigen eigen() const { return small_eigen(small_, most_, size_); }
  double coupling() const { return coupling_; }
  int64_t size() const { return size_; }
  double eps() const {
    return basis_[0].dtype() == DType::f32 ? std::numeric_limits<float>::epsilon()
                                           : std::numeric_limits<double>::epsilon();
  }

  /// Returns the vectors of the eigenpairs `chosen`, as rows.
  Tensor rotated(const SmallEigen& eigen, const std::vector<int64_t>& chosen) const {
    std::vector<double> turn;
    for (const int64_t pair : chosen) {
      for (int64_t i = 0; i < size_; ++i) turn.push_back(eigen.vector(pair, i));
    }
    const Tensor rotation = from_values(turn, {static_cast<int64_t>(chosen.size()), size_},
                                        {.dtype = basis_[0].dtype()});
    return matmul(next_to_basis(rotation), stack(first(size_), 0));
  }

  /// Keeps the vectors of the eigenpairs `chosen`, and the one that couples them to the rest.
  void restart(const SmallEigen& eigen, const std::vector<int64_t>& chosen) {
    const Tensor kept = rotated(eigen, chosen);
    Tensor next = basis_[static_cast<size_t>(size_)];
    std::fill(small_.begin(), small_.end(), 0);
    basis_.clear();
    for (size_t i = 0; i < chosen.size(); ++i) {
      basis_.push_back(redistributed(kept[static_cast<int64_t>(i)], next.sharding()));
      at(static_cast<int64_t>(i), static_cast<int64_t>(i)) =
          eigen.values[static_cast<size_t>(chosen[i])];
    }
    size_ = static_cast<int64_t>(chosen.size());
    basis_.push_back(std::move(next));
  }

 private:
  double& at(int64_t row, int64_t column) {
    return small_[static_cast<size_t>(row * most_ + column)];
  }
  Tensors first(int64_t count) const { return {basis_.begin(), basis_.begin() + count}; }
  Tensor next_to_basis(const Tensor& small) const {
    const Tensor& like = basis_[0];
    return like.is_sharded() ? distribute(small, like.sharding().mesh(), {}) : small;
  }

  /// Makes w orthogonal to the first `count` vectors, twice is enough (Kahan), and appends it with
  /// length 1; returns its parts along them.
  std::vector<double> take(Tensor w, int64_t count) {
    std::vector<double> along(static_cast<size_t>(count));
    for (int pass = 0; pass < 2 && count > 0; ++pass) {
      const Tensor vectors = stack(first(count), 0);
      const Tensor parts = squeeze(matmul(vectors, unsqueeze(w, 1)), 1);
      w = redistributed(sub(w, squeeze(matmul(unsqueeze(parts, 0), vectors), 0)),
                        basis_[0].sharding());
      const std::vector<double> more = values_of(parts);
      for (size_t i = 0; i < along.size(); ++i) along[i] += more[i];
    }
    norm_ = std::sqrt(values_of(sum_squares(w))[0]);
    basis_.resize(static_cast<size_t>(count));
    basis_.push_back(norm_ > 0 ? div(w, norm_) : w);
    return along;
  }

  const LinearOperator& a_;
  int64_t most_, size_ = 0;
  Tensors basis_;
  std::vector<double> small_;
  double norm_ = 0, coupling_ = 0, scale_ = 0;
};

}  // namespace

static Tensor start_vector(const LinearOperator& a, const LanczosOptions& options) {
  if (options.v0) {
    if (options.v0.ndim() != 1) fail("eigsh: v0 is ", options.v0.shape(), ", expected a vector");
    return solvable("eigsh", "v0", options.v0);
  }
  if (!a.matrix()) fail("eigsh: v0 is none, expected a vector for an operator without a matrix");
  return randn_like(select(solvable("eigsh", "matrix", a.matrix()), 1, 0));
}

Eigh eigsh(const LinearOperator& a, int64_t k, const LanczosOptions& options) {
  check_operator("eigsh", a);
  const NoGrad no_grad;
  const Tensor v0 = start_vector(a, options);
  const int64_t n = v0.size(0);
  if (k < 1 || k > n) fail("eigsh: k is ", k, ", expected 1 to ", n);
  const int64_t most =
      std::min(n, options.vectors > 0 ? options.vectors : std::max<int64_t>(2 * k + 1, 20));
  if (most <= k && most < n) {
    fail("eigsh: vectors is ", most, ", expected more than k, ", k);
  }
  Lanczos lanczos(a, v0, most);
  for (int64_t restart = 0;; ++restart) {
    lanczos.extend();
    const SmallEigen eigen = lanczos.eigen();
    const int64_t size = lanczos.size();
    const double norm = std::max(std::abs(eigen.values.front()), std::abs(eigen.values.back()));
    const double tolerance =
        (options.tolerance > 0 ? options.tolerance : 100 * lanczos.eps()) * norm;
    const auto extremes = [&](int64_t count) {
      std::vector<int64_t> chosen(static_cast<size_t>(count));
      std::iota(chosen.begin(), chosen.end(), options.largest ? size - count : 0);
      return chosen;
    };
    const std::vector<int64_t> wanted = extremes(k);
    const bool converged = std::ranges::all_of(wanted, [&](int64_t pair) {
      return lanczos.coupling() * std::abs(eigen.vector(pair, size - 1)) <= tolerance;
    });
    if (converged) {
      std::vector<double> values;
      for (const int64_t pair : wanted) values.push_back(eigen.values[static_cast<size_t>(pair)]);
      const Tensor made = from_values(values, {k}, {.dtype = v0.dtype()});
      return {v0.is_sharded() ? distribute(made, v0.sharding().mesh(), {}) : made,
              lanczos.rotated(eigen, wanted).t()};
    }
    if (restart == options.most_restarts) {
      throw_runtime_error(concat("eigsh: ", k, " pairs did not converge in ", restart,
                                 " restarts; more vectors or a larger tolerance may help"));
    }
    lanczos.restart(eigen, extremes(std::min(size - 1, k + (size - k) / 2)));
  }
}

Svd svd_lowrank(const Tensor& a_given, int64_t q, int64_t iterations) {
  const Tensor a = matrices("svd_lowrank", a_given);
  const int64_t least = std::min(a.size(-2), a.size(-1));
  if (q < 1 || q > least) fail("svd_lowrank: q is ", q, ", expected 1 to ", least);
  if (iterations < 0) fail("svd_lowrank: iterations is ", iterations, ", expected at least 0");
  std::vector<int64_t> sizes(a.shape().begin(), a.shape().end());
  sizes[sizes.size() - 2] = a.size(-1), sizes.back() = q;
  const Tensor at = transpose(a, -2, -1);
  Tensor basis = qr(matmul(a, randn(Shape(sizes), options_next_to(a, a.dtype())))).q;
  for (int64_t i = 0; i < iterations; ++i) {
    basis = qr(matmul(at, basis)).q;
    basis = qr(matmul(a, basis)).q;
  }
  const Svd small = svd(matmul(transpose(basis, -2, -1), a), false);
  return {matmul(basis, small.u), small.s, small.vh};
}

}  // namespace weft::linalg
